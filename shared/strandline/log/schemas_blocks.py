"""Query string of reads of blocks, with the names of the trustless gateway specification."""

import re
from typing import Literal

from pydantic import Field, field_validator

from strandline.schemas import ParticipantsQuery

_ENTITY_BYTES = r"(-?\d{1,15}):(\*|-?\d{1,15})"


class BlockQuery(ParticipantsQuery):
    """Query string of a read of blocks. Those with a `-` apply to CAR files only."""

    format: Literal["raw", "car"] | None = None
    """`raw`: the one block; `car`: blocks in a CAR file. Without it the header `Accept` decides."""
    car_version: Literal["1"] | None = Field(default=None, alias="car-version")
    """The version of the CAR format."""
    car_order: Literal["dfs", "unk"] | None = Field(default=None, alias="car-order")
    """The order of the blocks. It is depth first, whichever is asked for."""
    car_dups: Literal["y", "n"] | None = Field(default=None, alias="car-dups")
    """`y`: a block is sent as often as a link leads to it; `n` (default): once."""
    dag_scope: Literal["block", "entity", "all"] | None = Field(default=None, alias="dag-scope")
    """What follows the blocks along the path. `all` (default): all that the last one links to,
    directly or not; `block`, `entity`: the last one alone."""
    entity_bytes: str | None = Field(
        default=None, alias="entity-bytes", max_length=40, pattern=f"^{_ENTITY_BYTES}$"
    )
    """A range of bytes of a payload, as `0:1023` or `-1024:*`. It implies `dag-scope=entity`."""

    @field_validator("entity_bytes")
    @classmethod
    def _check_entity_bytes(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(_ENTITY_BYTES, value):  # $ allows a line break
            raise ValueError("must be from:to, as in 0:1023 or -1024:*")
        return value

    def first_byte(self, size: int) -> int:
        """Where the range begins in a payload of `size` bytes; 0 without a range."""
        start = int((self.entity_bytes or "0").partition(":")[0])
        return start if start >= 0 else max(0, size + start)
