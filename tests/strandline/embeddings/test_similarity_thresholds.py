"""What a cosine means in an embedding space."""

from strandline.embeddings import similarity_thresholds
from strandline.embeddings.minilm import EnglishEmbedder
from strandline.embeddings.similarity_thresholds import (
    ADA_002,
    CALIBRATED_THRESHOLDS,
    UNCALIBRATED_THRESHOLDS,
    thresholds_for,
)
from strandline.tuning import DEFAULTS


def test_similarity_thresholds_cover_shipped_model() -> None:
    thresholds = thresholds_for(EnglishEmbedder.space, DEFAULTS)
    assert thresholds == CALIBRATED_THRESHOLDS[EnglishEmbedder.space]
    assert thresholds not in (UNCALIBRATED_THRESHOLDS, ADA_002)


def test_similarity_thresholds_of_source_apply_to_ada_002_only() -> None:
    of_source = [
        space
        for space, calibrated_threshold in CALIBRATED_THRESHOLDS.items()
        if calibrated_threshold == ADA_002
    ]
    assert of_source == ["openai:text-embedding-ada-002/1536"]


def test_similarity_thresholds_uncalibrated_ask_everything() -> None:
    thresholds = thresholds_for("openai:somebodys/7", DEFAULTS)
    assert thresholds == UNCALIBRATED_THRESHOLDS
    assert (thresholds.low, thresholds.high) == (-1, 1)
    assert thresholds.merge >= 0.95


def test_similarity_thresholds_are_in_order() -> None:
    for thresholds in (*CALIBRATED_THRESHOLDS.values(), UNCALIBRATED_THRESHOLDS):
        assert -1 <= thresholds.low < thresholds.high <= 1
        assert (
            thresholds.high <= thresholds.merge <= 1
            or thresholds.merge >= similarity_thresholds.ADA_002.merge
        )


def test_similarity_thresholds_take_tenant_overrides() -> None:
    tuned = DEFAULTS.with_overrides({"similarity_low": 0.0, "similarity_merge": 0.9})
    thresholds = CALIBRATED_THRESHOLDS[EnglishEmbedder.space]
    assert thresholds_for(EnglishEmbedder.space, tuned) == (
        0.0,
        thresholds.high,
        0.9,
        thresholds.descend,
        thresholds.conflict,
    )
    assert thresholds_for(
        EnglishEmbedder.space, DEFAULTS.with_overrides({"similarity_high": 0.5})
    ) == thresholds._replace(high=0.5)
