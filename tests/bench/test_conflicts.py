"""The deterministic test of contradictions keeps its precision on pairs it was not written for."""

from strandline.embeddings.embedder import Embedder
from strandline.embeddings.similarity_thresholds import CALIBRATED_THRESHOLDS
from tests.bench.conflicts import choose_threshold, cosines, load_pairs, score_test


def test_conflict_check_has_full_precision() -> None:
    pairs = load_pairs()
    assert {name: len(group) for name, group in pairs.items()} == {
        "contradicting": 30,
        "compatible": 30,
    }
    score = score_test(pairs)
    assert score.precision == 1.0
    assert score.recall > 0.5


def test_conflict_threshold_of_shipped_model_is_measured(embedder: Embedder) -> None:
    near = cosines(embedder, load_pairs()["contradicting"])
    conflict = CALIBRATED_THRESHOLDS[embedder.space].conflict
    assert abs(choose_threshold(near) - conflict) <= 0.03
