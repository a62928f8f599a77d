"""Vectors of tree nodes: means that are rounded as they are stored, so that a tree is the same
wherever a build ended."""

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple


class MeanVector(NamedTuple):
    """The mean of event vectors."""

    values: tuple[float, ...]
    weight: int
    """Of how many event vectors."""

    @property
    def norm(self) -> float:
        """Its length."""
        return math.sqrt(math.sumprod(self.values, self.values))


def mean(parts: Sequence[MeanVector]) -> MeanVector | None:
    """The mean of means, each by its weight, in half precision; None of nothing. The order of
    `parts` matters to the last bit."""
    total = sum(part.weight for part in parts)
    if not total:
        return None
    weights = [part.weight / total for part in parts]
    columns = zip(*(part.values for part in parts), strict=True)
    return MeanVector(round_to_half([math.sumprod(weights, column) for column in columns]), total)


def round_to_half(values: Sequence[float]) -> tuple[float, ...]:
    """The values as a `halfvec` stores them. Raises OverflowError over 65,504."""
    form = f"<{len(values)}e"
    return struct.unpack(form, struct.pack(form, *values))


def cosine(first: MeanVector, second: MeanVector) -> float:
    """Their cosine; 0 where one of them has no length."""
    length = first.norm * second.norm
    return math.sumprod(first.values, second.values) / length if length else 0.0
