"""Vectors of tree nodes. Means are rounded to the stored precision, so that a tree does not depend
on where a build ended."""

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple


class MeanVector(NamedTuple):
    """The mean of event vectors."""

    values: tuple[float, ...]
    weight: int
    """The number of event vectors in the mean."""

    @property
    def norm(self) -> float:
        """The Euclidean norm."""
        return math.sqrt(math.sumprod(self.values, self.values))


def compute_weighted_mean(parts: Sequence[MeanVector]) -> MeanVector | None:
    """The mean of means, weighted by their weights, in half precision; None for no parts. The last
    bit of the result depends on the order of `parts`."""
    total = sum(part.weight for part in parts)
    if not total:
        return None
    weights = [part.weight / total for part in parts]
    columns = zip(*(part.values for part in parts), strict=True)
    return MeanVector(
        round_to_float16([math.sumprod(weights, column) for column in columns]), total
    )


def round_to_float16(values: Sequence[float]) -> tuple[float, ...]:
    """Round the values as a `halfvec` stores them. Raises OverflowError above 65,504."""
    form = f"<{len(values)}e"
    return struct.unpack(form, struct.pack(form, *values))


def compute_cosine_similarity(first: MeanVector, second: MeanVector) -> float:
    """The cosine similarity; 0 if one of the vectors has length 0."""
    length = first.norm * second.norm
    return math.sumprod(first.values, second.values) / length if length else 0.0
