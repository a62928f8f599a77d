"""What the cosines of an embedding space usually are, measured with texts that ship: of texts about
different matters, and of texts that belong together. All thresholds are derived from it."""

from collections.abc import Mapping
from typing import NamedTuple

from strandline.embeddings.embedder import (
    ENGLISH_DIMENSIONS,
    ENGLISH_MODEL,
    LOCAL_DIMENSIONS,
    LOCAL_MODEL,
)

TEXTS_VERSION = 1
"""The version of the texts that ship. Other texts give other figures, so a change raises it."""
_LEAST_DISTANCE = 2.0
"""By so many deviations texts that belong together must be nearer than others, on average. The
models that were tried have 4.1 to 8.9."""


class PairCosines(NamedTuple):
    """The cosines of pairs of texts of one kind, in one group of languages."""

    mean: float
    """Of texts about different matters."""
    deviation: float
    """Their standard deviation."""
    related: float
    """The mean cosine of texts that belong together."""

    @property
    def distance(self) -> float:
        """How many deviations texts that belong together are nearer than others, on average."""
        return (self.related - self.mean) / self.deviation if self.deviation > 0 else 0.0

    def interpolate(self, position: float) -> float:
        """The cosine at a position where 0 is that of texts about different matters, and 1 that of
        texts that belong together; 1 at most."""
        return min(self.mean + position * (self.related - self.mean), 1.0)


class SpaceFigures(NamedTuple):
    """The usual cosines of an embedding space."""

    questions: PairCosines
    """Of a question in English and an event; together belong a question and its answer."""
    other_questions: PairCosines
    """The same in other languages, each with events in any of these."""
    statements: PairCosines
    """Of two statements in English; together belong those that say the same in other words."""
    other_statements: PairCosines
    """The same in other languages."""
    messages: PairCosines
    """Of two events in English, with date and speaker; together belong a message and the next."""

    @property
    def is_usable(self) -> bool:
        """Whether the space tells texts that belong together from others, so that thresholds mean
        something in it. Not every vector of an endpoint is of a model for sentences."""
        return min(self.questions.distance, self.statements.distance) >= _LEAST_DISTANCE


SHIPPED_FIGURES: Mapping[str, SpaceFigures] = {
    f"{LOCAL_MODEL}/{LOCAL_DIMENSIONS}": SpaceFigures(
        questions=PairCosines(0.051, 0.054, 0.389),
        other_questions=PairCosines(0.0218, 0.0417, 0.2468),
        statements=PairCosines(0.066, 0.0661, 0.652),
        other_statements=PairCosines(0.5218, 0.0974, 0.8054),
        messages=PairCosines(0.2572, 0.073, 0.4411),
    ),
    f"{ENGLISH_MODEL}/{ENGLISH_DIMENSIONS}": SpaceFigures(
        questions=PairCosines(0.0799, 0.0753, 0.5015),
        other_questions=PairCosines(0.2103, 0.0977, 0.5315),
        statements=PairCosines(0.0746, 0.0822, 0.7036),
        other_statements=PairCosines(0.2371, 0.1344, 0.7422),
        messages=PairCosines(0.2543, 0.0991, 0.4557),
    ),
}
"""The figures of the spaces that ship, by name. A test measures them again."""
