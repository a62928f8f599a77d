"""The deterministic test of contradictions keeps its precision on pairs it was not written for."""

from strandline.embeddings.embedder import Embedder
from strandline.embeddings.similarity_thresholds import derive_thresholds
from strandline.embeddings.space_figures import SHIPPED_FIGURES
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


def test_conflict_threshold_is_reached_by_contradictions(embedder: Embedder) -> None:
    near = cosines(embedder, load_pairs()["contradicting"])
    conflict = derive_thresholds(SHIPPED_FIGURES[embedder.space]).conflict
    assert conflict <= choose_threshold(near) + 0.005
    assert conflict > choose_threshold(near) - 0.1
