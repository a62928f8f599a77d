"""What a cosine means in an embedding space."""

import pytest

from strandline.embeddings.similarity_thresholds import (
    ADA_002,
    UNCALIBRATED_THRESHOLDS,
    derive_thresholds,
    thresholds_for,
)
from strandline.embeddings.space_figures import SHIPPED_FIGURES, PairCosines, SpaceFigures
from strandline.tuning import DEFAULTS

SPACE, FIGURES = next(iter(SHIPPED_FIGURES.items()))


def shift(figures: SpaceFigures, share: float) -> SpaceFigures:
    """The figures of a space in which all vectors have so large a part in common."""
    return SpaceFigures(
        *(
            PairCosines(
                share + (1 - share) * pairs.mean,
                (1 - share) * pairs.deviation,
                share + (1 - share) * pairs.related,
            )
            for pairs in figures
        )
    )


@pytest.mark.parametrize("space", SHIPPED_FIGURES)
def test_similarity_thresholds_of_shipped_spaces(space: str) -> None:
    figures = SHIPPED_FIGURES[space]
    thresholds = thresholds_for(space, figures, DEFAULTS)
    assert figures.is_usable
    assert -1 <= thresholds.low < figures.messages.mean < thresholds.descend < thresholds.high < 1
    assert figures.statements.mean < thresholds.conflict < figures.statements.related
    assert figures.other_statements.related < thresholds.merge < thresholds.high


def test_similarity_thresholds_move_with_the_space() -> None:
    plain, shifted = derive_thresholds(FIGURES), derive_thresholds(shift(FIGURES, 0.7))
    for name in ("high", "merge", "descend", "conflict"):
        assert getattr(shifted, name) == pytest.approx(0.7 + 0.3 * getattr(plain, name), abs=0.002)
    assert shifted.descend_step == pytest.approx(0.3 * plain.descend_step, abs=0.001)


def test_similarity_thresholds_are_cosines() -> None:
    near = FIGURES._replace(statements=PairCosines(0.5, 0.05, 0.99))
    assert derive_thresholds(near).high == 1.0


def test_similarity_thresholds_of_source_apply_to_ada_002_only() -> None:
    assert thresholds_for("openai:text-embedding-ada-002/1536", FIGURES, DEFAULTS) == ADA_002
    assert thresholds_for("openai:text-embedding-3-small/1536", FIGURES, DEFAULTS) != ADA_002


def test_similarity_thresholds_uncalibrated_ask_everything() -> None:
    thresholds = thresholds_for("openai:somebodys/7", None, DEFAULTS)
    assert thresholds == UNCALIBRATED_THRESHOLDS
    assert (thresholds.low, thresholds.high) == (-1, 1)
    assert thresholds.merge >= 0.95


@pytest.mark.parametrize("kind", ["questions", "statements"])
def test_similarity_thresholds_need_a_space_that_tells_apart(kind: str) -> None:
    blurred = FIGURES._replace(**{kind: PairCosines(0.5, 0.1, 0.69)})
    assert derive_thresholds(blurred) == UNCALIBRATED_THRESHOLDS
    flat = FIGURES._replace(**{kind: PairCosines(1.0, 0.0, 1.0)})
    assert derive_thresholds(flat) == UNCALIBRATED_THRESHOLDS


def test_similarity_thresholds_take_tenant_overrides() -> None:
    tuned = DEFAULTS.with_overrides({"similarity_low": 0.0, "similarity_merge": 0.9})
    thresholds = derive_thresholds(FIGURES)
    assert thresholds_for(SPACE, FIGURES, tuned) == thresholds._replace(low=0.0, merge=0.9)
    assert thresholds_for(
        SPACE, FIGURES, DEFAULTS.with_overrides({"similarity_high": 0.5})
    ) == thresholds._replace(high=0.5)
