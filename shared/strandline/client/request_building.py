"""Requests: how the arguments of a verb become one, and what its answer is read as."""

from __future__ import annotations

import functools
import inspect
import json
import re
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast
from urllib.parse import quote

from strandline.client import answers
from strandline.client.errors import InvalidFieldError
from strandline.moments import parse_date_or_moment, parse_moment

T = TypeVar("T")


class KeepUnchanged(Enum):
    """The type of KEEP."""

    KEEP = "keep"


KEEP = KeepUnchanged.KEEP
"""The default of a parameter whose field a change leaves as it is."""


class RequestBodyStream(Protocol):
    """A body that is too large to be held at once."""

    def iterate_pieces(self) -> Iterator[bytes]:
        """Its bytes from the beginning, piece by piece; called again for each attempt."""
        ...


@dataclass(frozen=True)
class DownloadTarget:
    """A file for the bytes of an answer that is too large to be held at once."""

    path: Path
    max_bytes: int
    """An answer that goes on after so many is refused."""


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and how to read its answer."""

    method: str
    path: str
    """Below the service's address, or the whole address of another place."""
    parse: Callable[[bytes], T]
    query: Sequence[tuple[str, str]] = ()
    body: bytes | RequestBodyStream | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    once: bool = False
    """Whether a repetition would carry it out a second time: then it is repeated only if it was
    certainly not carried out."""
    also: Sequence[int] = ()
    """Statuses besides 2xx whose answers are no errors."""
    download: DownloadTarget | None = None
    """Where the answer's bytes go; `parse` gets none then."""
    see_headers: Callable[[Mapping[str, str]], None] | None = None
    """Called with the headers of the answer."""


class VerbGroup:
    """Something that has verbs."""

    def __init__(self, bound: Mapping[str, str] | None = None) -> None:
        self.bound: Mapping[str, str] = bound or {}
        """Parameters that every call of this object has, such as a session's id."""


# Requests -----------------------------------------------------------------------------------------

_EVERYBODY = "everybody"
"""The parameter of every read that has its place in the query string alone."""


@dataclass(frozen=True)
class Operation:
    """An operation of the service, and how a declaration's parameters are sent."""

    name: str
    """As in `POST /api/v1/recall`."""
    in_query: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """The name on the wire of a parameter that has another one here."""
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What every request has."""
    once: bool = False
    also: tuple[int, ...] = ()
    more: type | None = None
    """A TypedDict of further fields, which the declaration takes as `**more`."""

    @property
    def path_parameter_names(self) -> list[str]:
        """The parameters in the path."""
        return re.findall(r"{(\w+)\+?}", self.name)

    def build_call(
        self, values: Mapping[str, Any], parse: Callable[[bytes], T], *, has_key: bool
    ) -> Call[T]:
        """The request with these values. With `has_key` it has an idempotency key."""
        fields = {
            self.names.get(name, name): to_json_value(value) for name, value in values.items()
        }
        key = fields.pop("idempotency_key", None) or str(uuid.uuid4())
        method, _, template = self.name.partition(" ")
        path = template
        for name in self.path_parameter_names:  # {name+} takes several segments
            text = str(fields.pop(name))
            path = path.replace(f"{{{name}}}", quote(text, safe=""))
            path = path.replace(f"{{{name}+}}", quote(text))
        fields |= self.constants
        names = (*self.in_query, _EVERYBODY)
        in_query = [n for n in fields if method in ("GET", "DELETE") or n in names]
        query = [pair for name in in_query for pair in _make_query_pairs(name, fields.pop(name))]
        has_own_key = "source_event_key" in fields
        return Call(
            method,
            path,
            parse,
            query,
            None if method in ("GET", "DELETE") else json.dumps(fields).encode(),
            {"Idempotency-Key": key} if has_key and not has_own_key else {},
            self.once,
            self.also,
        )


def _make_query_pairs(name: str, value: Any) -> Iterator[tuple[str, str]]:
    for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
        yield name, item if isinstance(item, str) else json.dumps(item)


def to_json_value(value: Any) -> Any:
    """A value as JSON has it: times in RFC 3339, ids as text, models as objects."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): to_json_value(v) for name, v in cast("Mapping[Any, Any]", value).items()}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [to_json_value(item) for item in cast("Iterable[Any]", value)]
    return value


_TIMES = frozenset(
    ("occurred_at", "timestamp", "valid_from", "valid_to", "as_of", "since", "until", "now")
) | {"expires_at", "event_date"}
_WITH_TIMES = frozenset(("events", "nodes", "edges"))


def parse_time_fields(fields: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """The fields, and seconds among their times as datetimes: in an address a number is text.
    Raises InvalidFieldError, before anything is sent, for a time that the service would refuse."""
    checked = dict(fields)
    for name, value in fields.items():
        if name in _TIMES and value is not None:
            parse = parse_date_or_moment if name == "event_date" else parse_moment
            try:
                moment = parse(value)
            except ValueError as error:
                raise InvalidFieldError(
                    f"{place}{name}: {error}", details={"field": f"{place}{name}"}
                ) from None
            checked[name] = moment if isinstance(value, int | float) else value
        elif name in _WITH_TIMES and isinstance(value, list | tuple):
            items = cast("Sequence[Any]", value)
            checked[name] = [
                parse_time_fields(cast("Mapping[str, Any]", item), f"{place}{name}.{n}.")
                if isinstance(item, Mapping)
                else item
                for n, item in enumerate(items)
            ]
    return checked


def join_participants(
    user: str | None, agent: str | None, participants: Iterable[str] | None
) -> list[str] | None:
    """Everybody that the three parameters name; None where they name nobody."""
    if isinstance(participants, str):
        raise TypeError('participants: give a list, as in ["user:alice", "agent:helper"]')
    names = [
        qualify_participant(name, kind)
        for name, kind in ((user, "user"), (agent, "agent"))
        if name not in (None, "")
    ]
    return [*dict.fromkeys([*names, *(participants or ())])] or None


def qualify_participant(name: Any, kind: str) -> str:
    """A participant: `alice` is short for `user:alice`; a name with a colon is taken as it is.
    Raises TypeError for what is no text."""
    if not isinstance(name, str):
        raise TypeError(
            f'{kind}: give one name, as in {kind}="alice"; several go into '
            'participants=["user:alice", "user:bob"]'
        )
    return name if ":" in name else f"{kind}:{name}"


def require_events(events: Sequence[Any]) -> None:
    """Raise TypeError, naming its place, for an item that is no event."""
    for n, event in enumerate(events):
        if not isinstance(event, Mapping):
            raise TypeError(
                f"events[{n}]: give a mapping, as in "
                '{"participants": ["user:alice"], "role": "user", "content": "..."}; '
                f"this one is {type(event).__name__}"
            )


class VerbSignature:
    """The signature of a verb, and how arguments become values of its request."""

    def __init__(self, function: Callable[..., Any], operation: Operation) -> None:
        self.function, self.operation = function, operation

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """Without evaluating annotations: that would import every answer's type."""
        return inspect.signature(self.function)

    @functools.cached_property
    def answer_type(self) -> Any:
        """The type that the declaration returns."""
        bare = types.SimpleNamespace(
            __annotations__={"return": self.function.__annotations__["return"]}
        )
        return typing.get_type_hints(bare, {**vars(typing), "answers": answers})["return"]

    @functools.cached_property
    def parameter_defaults(self) -> dict[str, Any]:
        """The parameters with their defaults; `inspect.Parameter.empty` for one that must be
        given."""
        parameters = {
            name: parameter.default
            for name, parameter in self.signature.parameters.items()
            if name not in ("self", "more")
        }
        more = self.operation.more
        return parameters | dict.fromkeys(more.__annotations__ if more else (), None)

    def bind_arguments(
        self, caller: VerbGroup, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """What is to be sent, by parameter. Raises TypeError for wrong arguments."""
        try:
            bound = dict(self.signature.bind(caller, *args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{self.function.__name__}(): {error}") from None
        bound |= bound.pop("more", {})
        bound.pop("self")
        silent = (None, KEEP, inspect.Parameter.empty)
        arguments = {
            n: default for n, default in self.parameter_defaults.items() if default not in silent
        } | bound
        if unknown := arguments.keys() - self.parameter_defaults.keys():
            raise TypeError(f"{self.function.__name__}() has no parameter {min(unknown)!r}")
        if "participants" in self.parameter_defaults:
            arguments["participants"] = join_participants(
                arguments.pop("user", None),
                arguments.pop("agent", None),
                arguments.get("participants"),
            )
        else:
            for kind in ("user", "agent"):
                if isinstance(arguments.get(kind), str):
                    arguments[kind] = qualify_participant(arguments[kind], kind)
        fields = {
            name: value
            for name, value in arguments.items()
            if value is not KEEP and not (value is None and self.parameter_defaults[name] is None)
        }
        return {**caller.bound, **parse_time_fields(fields)}

    def build_call(
        self,
        caller: VerbGroup,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        parse: Callable[[bytes], T],
    ) -> Call[T]:
        """The request of these arguments."""
        has_key = "idempotency_key" in self.parameter_defaults
        return self.operation.build_call(
            self.bind_arguments(caller, args, kwargs), parse, has_key=has_key
        )


def parse_answer(answer_type: Any, content: bytes) -> Any:
    """An answer's bytes as its type. Raises ValueError."""
    if answer_type is bytes:
        return content
    if answer_type is str:
        return content.decode()
    return _make_type_adapter(answer_type).validate_json(content)


@functools.cache
def _make_type_adapter(answer: Any) -> Any:
    from pydantic import TypeAdapter  # when the first answer is read

    return TypeAdapter(answer)
