"""What a cosine means in an embedding space."""

from strandline.embeddings import spaces
from strandline.embeddings.minilm import LocalEmbedder
from strandline.embeddings.spaces import (
    ADA_002,
    CALIBRATED_THRESHOLDS,
    UNCALIBRATED_THRESHOLDS,
    thresholds_for,
)
from strandline.tuning import DEFAULTS


def test_the_model_that_ships_is_calibrated() -> None:
    found = thresholds_for(LocalEmbedder.space, DEFAULTS)
    assert found == CALIBRATED_THRESHOLDS[LocalEmbedder.space]
    assert found not in (UNCALIBRATED_THRESHOLDS, ADA_002)


def test_the_sources_values_are_of_their_model_alone() -> None:
    of_source = [space for space, known in CALIBRATED_THRESHOLDS.items() if known == ADA_002]
    assert of_source == ["openai:text-embedding-ada-002/1536"]


def test_in_a_space_nobody_calibrated_everything_is_asked() -> None:
    found = thresholds_for("openai:somebodys/7", DEFAULTS)
    assert found == UNCALIBRATED_THRESHOLDS
    assert (found.low, found.high) == (-1, 1)
    assert found.merge >= 0.95


def test_every_space_has_its_thresholds_in_order() -> None:
    for found in (*CALIBRATED_THRESHOLDS.values(), UNCALIBRATED_THRESHOLDS):
        assert -1 <= found.low < found.high <= 1
        assert found.high <= found.merge <= 1 or found.merge >= spaces.ADA_002.merge


def test_a_tenant_goes_before() -> None:
    tuned = DEFAULTS.with_overrides({"similarity_low": 0.0, "similarity_merge": 0.9})
    known = CALIBRATED_THRESHOLDS[LocalEmbedder.space]
    assert thresholds_for(LocalEmbedder.space, tuned) == (
        0.0,
        known.high,
        0.9,
        known.descend,
        known.conflict,
    )
    assert thresholds_for(
        LocalEmbedder.space, DEFAULTS.with_overrides({"similarity_high": 0.5})
    ) == known._replace(high=0.5)
