"""Tools: their names and schemas for the model, the rights that they need, and their functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.auth.principals import Principal, Right
from strandline.mcp.argument_schemas import Schema, boolean_schema
from strandline.mcp.arguments import Arguments, WrongArgument, parse_tool_arguments
from strandline.mcp.operations import Operations
from strandline.mcp.rendering import sanitize_name
from strandline.participants import is_joined_by_comma

_PREFIX = "memory_"
_EVERYBODY: Mapping[str, Schema] = {"everybody": boolean_schema("Read all of the tenant.")}
"""An admin's word, which a refusal tells: in a list it would cost every model tokens."""
_READ_HINTS: Mapping[str, bool] = {"readOnlyHint": True}
_ADD_HINTS: Mapping[str, bool] = {"destructiveHint": False, "openWorldHint": False}
"""Hints for the client; what is left out has the protocol's default, the worst."""
_EXAMPLE, _SHOWN_NAMES = ", as in ", 4


@dataclass(frozen=True)
class ToolContext:
    """The context of a tool call: the operations, and the participants."""

    operations: Operations
    principal: Principal
    participants: Sequence[str]
    """Those of the connection, where a call names none."""
    everybody: bool = False
    """Whether the connection reads all of the tenant, where a call says nothing else."""

    def make_read_participants(self, arguments: Arguments) -> dict[str, list[str]]:
        """The parameter `participants` of a read, or `everybody`: those of the call, else of the
        connection. Raises WrongArgument."""
        participants: list[str] = arguments.get("participants") or []
        if any(map(is_joined_by_comma, participants)):
            raise WrongArgument(
                'participants: give each name as a text of its own, as in ["user:alice", '
                '"agent:helper"]'
            )
        everybody = arguments.get("everybody", self.everybody and not participants)
        if not participants and "everybody" not in arguments:
            participants = [*self.participants]
        return ({"participants": participants} if participants else {}) | (
            {"everybody": ["true"]} if everybody else {}
        )

    def list_write_participants(self, arguments: Arguments | None = None) -> list[str]:
        """The participants of a write, among them the credential's own user; those of the
        connection where no call names others."""
        participants = [*self.make_read_participants(arguments or {}).get("participants", [])]
        if self.principal.user and self.principal.user not in participants:
            participants.append(self.principal.user)
        return participants

    @property
    def shown_participants(self) -> str:
        """The participants where a call names none, for the model; empty without any."""
        names = self.list_write_participants()
        shown_names = [name for name in names if sanitize_name(name) == name][:_SHOWN_NAMES]
        if not shown_names:
            return "the connection's" if names else "everybody" if self.everybody else ""
        others = len(names) - len(shown_names)
        return ", ".join([*shown_names, *([f"{others} more"] if others else [])])

    def make_participants_and_speaker(self, arguments: Arguments) -> dict[str, Any]:
        """The fields of a write that say who takes part and whose words it stores: the agent's
        among the participants, or an agent's without a name, unless `speaker` names somebody.
        Raises WrongArgument."""
        members = self.require_write_participants(arguments)
        speaker: str | None = arguments.get("speaker")
        if speaker is None:
            if arguments.get("role") == "user":
                users = [name for name in members["participants"] if name.startswith("user:")]
                user = self.principal.user or next(iter(users), "user:alice")
                raise WrongArgument(
                    f'speaker: name the user whose words these are, as in "{sanitize_name(user)}"; '
                    "without it they are the agent's"
                )
            agents = [name for name in members["participants"] if name.startswith("agent:")]
            named = {"speaker": agents[0]} if len(agents) == 1 else {}
            return {**members, **named, "role": "agent"}
        is_user = speaker.strip().startswith("user:")
        role = arguments.get("role") or ("user" if is_user else "agent")
        return {**members, "speaker": speaker, "role": role}

    def require_write_participants(self, arguments: Arguments) -> dict[str, list[str]]:
        """The parameter `participants` of a write. Raises WrongArgument."""
        participants = self.list_write_participants(arguments)
        if not participants:
            raise WrongArgument(
                'participants: say whose memory it is, as in ["user:alice", "agent:helper"]'
            )
        return {"participants": participants}


@dataclass(frozen=True)
class Tool:
    """A tool: its description for a model, and its function."""

    name: str
    """Says whose tool it is, as other servers' tools stand beside it."""
    description: str
    rights: tuple[Right, ...]
    """Without one of them the tool is not listed. The operation itself refuses the call."""
    run: Callable[[ToolContext, Arguments], str]
    properties: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    required: tuple[str, ...] = ()
    is_read_only: bool = True
    is_additive: bool = True
    """Whether a tool that is not read-only adds to what is there alone. Clients ask the user before
    every call of one that may do otherwise."""
    is_for_bound: bool = True
    """Whether a credential that is bound to a user, and not an admin's, may call it."""
    unlisted: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    """Arguments that it takes and does not name."""

    field_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its arguments by the names that the operation's errors have for them, or by what those names
    begin with: `nodes.0` is "" where the arguments are that node's fields."""

    @property
    def accepted_names(self) -> tuple[str, ...]:
        """The names by which it can be called: its own, and a shorter one that is not listed."""
        short = self.name.removeprefix(_PREFIX)
        return (self.name,) if short == self.name else (self.name, short)

    def make_list_entry(self, context: ToolContext) -> dict[str, Any]:
        """Its entry in `tools/list` of a connection, whose participants its arguments name: not
        every client shows a model the server's instructions."""
        properties = {
            name: {**schema, "description": _describe_argument(name, schema, context)}
            for name, schema in self.properties.items()
        }
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if self.required:
            schema["required"] = list(self.required)
        hints = _READ_HINTS if self.is_read_only else _ADD_HINTS
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            **({"annotations": hints} if self.is_read_only or self.is_additive else {}),
        }

    def is_allowed_for(self, principal: Principal) -> bool:
        """Whether a credential may call the tool."""
        if principal.user and not self.is_for_bound and not principal.has_right("admin"):
            return False
        return all(principal.has_right(right) for right in self.rights)

    def name_argument(self, field: str) -> str:
        """The argument that an operation's error is about, from the error's field; empty where it
        is about all of them."""
        for name, argument in self.field_names.items():
            if field == name or field.startswith(f"{name}."):
                return (argument + field.removeprefix(name)).removeprefix(".")
        return field

    def parse_arguments(self, arguments: Arguments) -> Arguments:
        """The arguments of a call, in the types of the schema. Raises WrongArgument."""
        reads_for = self.is_read_only and "participants" in self.properties
        unlisted = {**self.unlisted, **(_EVERYBODY if reads_for else {})}
        return parse_tool_arguments(self.name, self.properties, self.required, arguments, unlisted)


def _describe_argument(name: str, schema: Schema, context: ToolContext) -> str:
    """An argument's description, with the connection's participants in place of an example."""
    description: str = schema["description"]
    if name == "participants":
        default = context.shown_participants
        if not default:
            return f"{description} Needed."
        return f"{description.partition(_EXAMPLE)[0]}. Default: {default}."
    users = [one for one in context.list_write_participants() if one.startswith("user:")]
    if name == "speaker" and users and sanitize_name(users[0]) == users[0]:
        return description.replace(f"{_EXAMPLE}user:alice", f"{_EXAMPLE}{users[0]}")
    return description
