"""The deterministic test of contradictions keeps its precision on pairs it was not written for."""

from strandline.embeddings.embedder import Embedder
from strandline.embeddings.similarity_thresholds import CALIBRATED_THRESHOLDS
from tests.bench.conflicts import choose_threshold, cosines, load_pairs, score_test


def test_what_is_called_a_contradiction_is_one() -> None:
    pairs = load_pairs()
    assert {name: len(group) for name, group in pairs.items()} == {
        "contradicting": 30,
        "compatible": 30,
    }
    score = score_test(pairs)
    assert score.precision == 1.0
    assert score.recall > 0.5


def test_the_threshold_of_the_model_that_ships_is_the_measured_one(embedder: Embedder) -> None:
    near = cosines(embedder, load_pairs()["contradicting"])
    conflict = CALIBRATED_THRESHOLDS[embedder.space].conflict
    assert abs(choose_threshold(near) - conflict) <= 0.03
