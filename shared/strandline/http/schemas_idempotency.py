"""A request's `Idempotency-Key`, and the header that marks the answer to a replay."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypeAliasType

from strandline.schemas import RequestModel

REPLAYED_HEADER = "Idempotent-Replayed"
"""The header that marks replays."""
IdempotencyKey = TypeAliasType(
    "IdempotencyKey", Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[\x20-\x7e]+$")]
)


class IdempotencyHeaders(RequestModel):
    """Headers of a write that is done once under a key."""

    idempotency_key: IdempotencyKey | None = Field(default=None, alias="Idempotency-Key")
    """A source event key in channel `http` for this request. In a batch, item i has the key
    `<key>#i`."""
