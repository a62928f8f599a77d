"""What all requests and answers share: JSON parsing with limits, checked types, base models."""

import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails
from typing_extensions import TypeAliasType

from strandline import moments, participants
from strandline.errors import Invalid, Malformed

Model = TypeVar("Model", bound=BaseModel)

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32


# JSON --------------------------------------------------------------------------------------------


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        duplicate, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise Malformed(
            f"body: the name {duplicate[:_MAX_PATH_CHARS]!r} occurs twice in one object",
            field="body",
        )
    return fields


def parse_json(text: str | bytes) -> Any:
    """Parse JSON (RFC 8259) of any type. A name may occur only once in its object. Raises Malformed
    or Invalid."""
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_reject_duplicate_names)
    except RecursionError:
        raise Invalid(f"body: nested deeper than {MAX_DEPTH} levels", field="body") from None
    except UnicodeDecodeError as error:
        raise Malformed(
            f"body: not UTF-8 at byte {error.start}. Send JSON in UTF-8, and uncompressed",
            field="body",
        ) from None
    except ValueError as error:
        position = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise Malformed(f"body: not valid JSON{position}", field="body") from None


def check_storable(value: Any) -> Any:
    """Return the value if it can be stored: no NaN and no number beyond a double, no NUL and no
    lone surrogate in any string, at most 32 levels. Raises Invalid naming the path. Separate from
    `parse_json`, so that one item of a batch can fail alone."""
    _check_storable_at_path(value, "", 0)
    return value


def _check_storable_at_path(value: Any, path: str, depth: int) -> None:
    if isinstance(value, str):
        _check_storable_text(value, path)
    elif isinstance(value, (int, float)):
        if not -sys.float_info.max <= value <= sys.float_info.max:  # also true for NaN
            raise Invalid(
                f"{path or 'body'}: NaN, Infinity and numbers beyond a double are not JSON",
                field=path or "body",
            )
    elif isinstance(value, (dict, list)):
        if depth >= MAX_DEPTH:
            raise Invalid(
                f"{path or 'body'}: nested deeper than {MAX_DEPTH} levels", field=path or "body"
            )
        if isinstance(value, dict):
            for name, item in cast("dict[str, Any]", value).items():
                _check_storable_text(name, f"{path}.(name)")
                _check_storable_at_path(
                    item,
                    f"{path}.{name}"[:_MAX_PATH_CHARS] if path else name[:_MAX_PATH_CHARS],
                    depth + 1,
                )
        else:
            for i, item in enumerate(cast("list[Any]", value)):
                _check_storable_at_path(item, f"{path}[{i}]"[:_MAX_PATH_CHARS], depth + 1)


def _check_storable_text(text: str, path: str) -> None:
    is_plain = text.isascii() and "\x00" not in text
    match = None if is_plain else _UNSTORABLE.search(text)
    if match is not None:
        code = ord(match[0])
        name = "NUL" if code == 0 else "half of a character, a lone surrogate"
        if 0xDC80 <= code <= 0xDCFF:  # so a query string's are decoded
            name = "a byte that is not UTF-8, or half of a character"
        raise Invalid(
            f"{path or 'body'}: contains U+{code:04X} ({name}) at position "
            f"{match.start()}, which cannot be stored; send U+FFFD in its place, or leave it out",
            field=path or "body",
        )


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_PLAIN_MESSAGES = {
    "Input should be a valid dictionary": "must be a JSON object",
    "Extra inputs are not permitted": "is not a known field",
    "Field required": "is required",
}
"""Replacements for messages of pydantic that a caller would not understand."""
_PARTICIPANTS = 'say who takes part as `participants`, as in ["user:alice", "agent:helper"]'
_UNKNOWN, _REQUIRED = (
    _PLAIN_MESSAGES["Extra inputs are not permitted"],
    _PLAIN_MESSAGES["Field required"],
)
_MESSAGE_HINTS: Mapping[tuple[str, str], str] = {
    **{(name, _UNKNOWN): f": {_PARTICIPANTS}" for name in ("user_id", "agent_id", "user", "agent")},
    ("participants", _REQUIRED): f": {_PARTICIPANTS}",
    ("role", "Input should be 'user', 'agent' or 'system'"): (
        " (`assistant` is taken as `agent`); what a tool returned is an agent's event of the type "
        "`observation`"
    ),
}
"""The text that is appended to a message, by field and message."""
_MAX_PATH_CHARS = 80
"""The most characters of a path that a message shows: a caller's own field name can be as long as
the body."""


def validate(model: type[Model], value: object) -> Model:
    """Validate a parsed body as `model`. Raises Invalid naming the first field that is not
    acceptable; its details name up to 20."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
    paths = [
        _locate_invalid_field(error, value)[:_MAX_PATH_CHARS] or "body" for error in errors[:20]
    ]
    known_fields = model.model_fields.keys()
    messages = (
        _rephrase_validation_message(path, _describe_validation_error(error), known_fields)
        for path, error in zip(paths, errors, strict=False)
    )
    fields = list(zip(paths, messages, strict=False))
    raise Invalid(
        f"{fields[0][0]}: {fields[0][1]}",
        field=fields[0][0],
        fields=[{"field": f, "message": m} for f, m in fields],
    )


def _locate_invalid_field(error: ErrorDetails, value: object) -> str:
    """The path of a field in the body, as in `events.0.content`. pydantic's path also names which
    member of a union was tried, which is not part of the body."""
    *_, last = error["loc"] or ("",)
    path: list[str] = []
    for part in error["loc"]:
        fields = cast("dict[object, object]", value) if isinstance(value, dict) else None
        items = cast("list[object]", value) if isinstance(value, list) else ()
        if fields is not None and part in fields:
            value = fields[part]
        elif isinstance(part, int) and part < len(items):
            value = items[part]
        elif fields is not None and not (part is last and error["type"] == "missing"):
            continue
        path.append(str(part))
    return ".".join(path)


def _describe_validation_error(error: ErrorDetails) -> str:
    """pydantic's message, without the value that the caller sent."""
    context = error.get("ctx", {})
    if error["type"] == "union_tag_invalid":
        return f"{context['discriminator']} must be one of {context['expected_tags']}"
    if error["type"] == "union_tag_not_found":
        return f"{context['discriminator']} is missing"
    return error["msg"]


def _rephrase_validation_message(path: str, message: str, known_fields: Collection[str]) -> str:
    """pydantic's message in plain words, with advice where the mistake comes from the conventions
    of other APIs."""
    text = message.removeprefix("Value error, ")
    plain = next((p for m, p in _PLAIN_MESSAGES.items() if text.startswith(m)), text)
    if path != "role" and "participants" not in known_fields:
        return plain
    return plain + _MESSAGE_HINTS.get((path, plain), "")


# types -------------------------------------------------------------------------------------------


def _parse_int(value: object) -> int:
    """Parse a whole number, also one in the text of a query string. Raises ValueError."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, int):
        return value
    raise ValueError("must be a whole number")


def _parse_bool(value: object) -> bool:
    """Parse a truth value, also one in the text of a query string. Raises ValueError."""
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError("must be true or false")


def _parse_number_text(value: object) -> float:
    """Parse a number such as 0.5 or 5e-1 in the text of a query string. Raises ValueError."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    raise ValueError("must be a number")


_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)
_PARTICIPANT_SCHEMA = {
    "type": "string",
    "maxLength": participants.MAX_LENGTH,
    "pattern": r"^\s*[a-z][a-z0-9_-]{0,31}:[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$",
}
"""A first check; `participants.normalize_participant` decides."""
_MOMENT_FORMS = [
    {"type": "string", "format": "date-time"},
    {"type": "number", "minimum": moments.MIN_SECONDS, "maximum": moments.MAX_SECONDS},
]
Moment = TypeAliasType(
    "Moment",
    Annotated[
        datetime, BeforeValidator(moments.parse_moment), WithJsonSchema({"anyOf": _MOMENT_FORMS})
    ],
)
"""A time that a caller, a file or a model gives: no other type takes one."""
DateOrMoment = TypeAliasType(
    "DateOrMoment",
    Annotated[
        datetime,
        BeforeValidator(moments.parse_date_or_moment),
        WithJsonSchema({"anyOf": [{"type": "string", "format": "date"}, *_MOMENT_FORMS]}),
    ],
)
"""A moment, or a date alone: the first moment of that day in UTC."""
PARSE_COUNT = BeforeValidator(_parse_int)
PARSE_NUMBER = BeforeValidator(_parse_number_text)
"""For a nullable parameter they stand after its limits, as in `Annotated[int, Field(ge=1),
PARSE_COUNT] | None`: the JSON schema of a limit that stands after a parser names no `minimum`."""
Count = Annotated[int, PARSE_COUNT]
Switch = Annotated[bool, BeforeValidator(_parse_bool)]
Participant = TypeAliasType(
    "Participant",
    Annotated[
        str,
        Field(max_length=participants.MAX_LENGTH * 4),  # the length before trimming
        WithJsonSchema(_PARTICIPANT_SCHEMA),
    ],
)
Participants = TypeAliasType(
    "Participants", Annotated[list[Participant], Field(min_length=1, max_length=256)]
)
TENANT_PATTERN = "^[a-z0-9][a-z0-9-]{0,62}$"


class RequestModel(BaseModel):
    """What a caller sends: an unknown name is refused, because a misspelt filter would answer more
    than was asked for."""

    # Deferred: a process builds only the validators of the requests that it receives.
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)


class ResponseModel(BaseModel):
    """What a caller gets: every field is present, if only as null."""

    model_config = ConfigDict(
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,
        defer_build=True,
    )


class NoQuery(RequestModel):
    """A route without query parameters: an unknown one is refused, as on every route."""


class NoBody(RequestModel):
    """A route without a body, or with an empty object: any field is refused, because it would have
    no effect."""


class ParticipantsQuery(RequestModel):
    """Query string of every read."""

    participants: Participants | None = None
    """The participants to read for (repeat the parameter for several): the answer contains only
    what all of them took part in, together with those that the body names. A bound user is added
    automatically."""
    everybody: Switch = False
    """`true`: read all of the tenant, no matter who took part, instead of naming participants.
    Only for an admin's credential that is not bound to a user."""


class PagedReadQuery(ParticipantsQuery):
    """Query string of a list."""

    limit: Count = Field(default=50, ge=1, le=500)
    """The most entries of a page."""
    cursor: str | None = Field(default=None, max_length=4096)
    """`next_cursor` of the page before."""


class PagingQuery(RequestModel):
    """Query string of an operator's list."""

    limit: Count = Field(default=50, ge=1, le=500)
    """The most entries of a page."""
    cursor: str | None = Field(default=None, max_length=4096)
    """`next_cursor` of the page before."""


class Refusal(ResponseModel):
    """Why a request was refused."""

    code: str
    """For programs: it does not change when the message is reworded."""
    message: str
    """For people: names the field and says how to correct the request."""
    details: dict[str, Any]
    """`field` and `fields` name what is not acceptable; other members depend on the code."""
    request_id: str
    """Quote it when you report the error."""
    retryable: bool
    """Whether the same request may succeed later."""


class Error(ResponseModel):
    """The one shape of every error."""

    error: Refusal
