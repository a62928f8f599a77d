"""A request's `Idempotency-Key`, and the header that marks the answer to a replay."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from typing_extensions import TypeAliasType

from strandline.schemas import RequestModel

REPLAYED_HEADER = "Idempotent-Replayed"
"""The header that marks replays."""
_PRINTABLE_ASCII = r"^[\x20-\x7e]+$"


def _check_printable_ascii(value: str) -> str:
    if not re.fullmatch(_PRINTABLE_ASCII, value):
        raise ValueError("must be printable ASCII; percent-encode other characters")
    return value


IdempotencyKey = TypeAliasType(
    "IdempotencyKey",
    Annotated[
        str,
        Field(min_length=1, max_length=500, json_schema_extra={"pattern": _PRINTABLE_ASCII}),
        AfterValidator(_check_printable_ascii),
    ],
)


class IdempotencyHeaders(RequestModel):
    """Headers of a write that is done once under a key."""

    idempotency_key: IdempotencyKey | None = Field(default=None, alias="Idempotency-Key")
    """A source event key in channel `http` for this request. In a batch, item i has the key
    `<key>#i`."""
