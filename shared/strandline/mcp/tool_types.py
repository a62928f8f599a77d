"""Tools: their names and schemas for the model, the rights that they need, and their functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from strandline.auth.principals import Principal, Right
from strandline.context.fence import sanitize
from strandline.errors import Invalid
from strandline.mcp.operations import Operations
from strandline.schemas import check_storable

type Schema = Mapping[str, Any]
"""JSON Schema, in the few words that `check_arguments` knows."""
type Arguments = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
SWITCH: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
TEXTS: Schema = {"type": "array", "items": TEXT}
OBJECTS: Schema = {"type": "array", "items": OBJECT}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_NOUNS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
}


def choice(*names: str) -> Schema:
    """One of some words."""
    return {"type": "string", "enum": list(names)}


class WrongArgument(Exception):
    """An argument that a tool does not accept. The text names it and the way out."""


@dataclass(frozen=True)
class ToolContext:
    """The context of a tool call: the operations, and the participants."""

    operations: Operations
    principal: Principal
    participants: Sequence[str]
    """Those of the connection, where a call names none."""
    everybody: bool = False
    """Whether the connection reads all of the tenant, where a call says nothing else."""

    def get_read_participants(self, arguments: Arguments) -> dict[str, list[str]]:
        """The parameter `participants` of a read, or `everybody`: those of the call, else of the
        connection."""
        participants: list[str] = arguments.get("participants") or []
        everybody = arguments.get("everybody", self.everybody and not participants)
        if not participants and "everybody" not in arguments:
            participants = [*self.participants]
        return ({"participants": participants} if participants else {}) | (
            {"everybody": ["true"]} if everybody else {}
        )

    def get_members(self, arguments: Arguments | None = None) -> list[str]:
        """The participants of a write, among them the credential's own user; those of the
        connection where no call names others."""
        participants = [*self.get_read_participants(arguments or {}).get("participants", [])]
        if self.principal.user and self.principal.user not in participants:
            participants.append(self.principal.user)
        return participants

    def get_author(self, arguments: Arguments) -> dict[str, Any]:
        """The fields of a write that say who takes part and whose words it stores: the agent's
        among the participants, or an agent's without a name, unless `speaker` names somebody.
        Raises WrongArgument."""
        members = self.get_write_participants(arguments)
        speaker: str | None = arguments.get("speaker")
        if speaker is None:
            if arguments.get("role") == "user":
                raise WrongArgument(
                    'speaker: name the user whose words these are, as in "user:alice"; without it '
                    "they are the agent's"
                )
            agents = [name for name in members["participants"] if name.startswith("agent:")]
            named = {"speaker": agents[0]} if len(agents) == 1 else {}
            return {**members, **named, "role": "agent"}
        is_user = speaker.strip().startswith("user:")
        role = arguments.get("role") or ("user" if is_user else "agent")
        return {**members, "speaker": speaker, "role": role}

    def get_write_participants(self, arguments: Arguments) -> dict[str, list[str]]:
        """The parameter `participants` of a write. Raises WrongArgument."""
        participants = self.get_members(arguments)
        if not participants:
            raise WrongArgument(
                'participants: say whose memory it is, as in ["user:alice", "agent:helper"]'
            )
        return {"participants": participants}


@dataclass(frozen=True)
class Tool:
    """A tool: its description for a model, and its function."""

    name: str
    description: str
    rights: tuple[Right, ...]
    """Without one of them the tool is not listed. The operation itself refuses the call."""
    run: Callable[[ToolContext, Arguments], str]
    properties: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    required: tuple[str, ...] = ()
    is_read_only: bool = True
    is_for_bound: bool = True
    """Whether a credential that is bound to a user, and not an admin's, may call it."""

    @property
    def definition(self) -> dict[str, Any]:
        """Its entry in `tools/list`."""
        schema: dict[str, Any] = {"type": "object", "properties": dict(self.properties)}
        if self.required:
            schema["required"] = list(self.required)
        hints = {"annotations": {"readOnlyHint": True}} if self.is_read_only else {}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            **hints,
        }

    def is_allowed(self, principal: Principal) -> bool:
        """Whether a credential may call the tool."""
        if principal.user and not self.is_for_bound and not principal.has_right("admin"):
            return False
        return all(principal.has_right(right) for right in self.rights)

    def check_arguments(self, arguments: Arguments) -> None:
        """Raise WrongArgument for an argument that is unknown, missing, of another type, or that
        cannot be stored. Limits and formats are checked by the operation."""
        try:
            check_storable(arguments)
        except Invalid as error:
            raise WrongArgument(sanitize(str(error))) from None
        properties = self.properties
        if self.is_read_only and "participants" in properties:
            # An admin's word, which a refusal tells: in a list it would cost every model tokens.
            properties = {**properties, "everybody": SWITCH}
        unknown = arguments.keys() - properties.keys()
        if unknown:
            names = ", ".join(self.properties) or "none"
            # Not the name that was sent: a model may put anything there.
            raise WrongArgument(f"{len(unknown)} unknown; {self.name} takes: {names}")
        for name in self.required:
            if name not in arguments:
                raise WrongArgument(f"{name}: is required")
        for name, value in arguments.items():
            _check(name, properties[name], value)


def _check(name: str, schema: Schema, value: object) -> None:
    kind: str = schema["type"]
    is_of_type = isinstance(value, _TYPES[kind]) and (
        kind == "boolean" or not isinstance(value, bool)
    )
    if not is_of_type:
        raise WrongArgument(f"{name}: must be {_NOUNS[kind]}")
    if "enum" in schema and value not in schema["enum"]:
        raise WrongArgument(f"{name}: must be one of {', '.join(schema['enum'])}")
    if kind == "array":
        for position, item in enumerate(cast("list[object]", value)):
            _check(f"{name}[{position}]", schema["items"], item)


def pick(arguments: Arguments, *names: str, **aliases: str) -> dict[str, Any]:
    """The arguments that are given of `names`, and of `aliases` under the name of a field:
    `pick(arguments, "limit", types="node_types")`."""
    fields = {name: name for name in names} | aliases
    return {f: arguments[a] for f, a in fields.items() if arguments.get(a) is not None}
