"""How well contradictions are found: which share of contradicting pairs of facts is above a cosine,
and what the deterministic test says of pairs. They were written before the test was run on them.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.conflicts
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from math import floor, sumprod
from pathlib import Path
from typing import NamedTuple

from strandline.background.calibrate_space import measure_space
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.factory import make_embedder
from strandline.embeddings.similarity_thresholds import derive_thresholds
from strandline.llm.heuristic.contradiction import explain_contradiction

type Pair = tuple[str, str]
_FILE = Path(__file__).with_name("conflict_pairs.json")
_CUTS = (0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85)


class Score(NamedTuple):
    """Of those pairs that were said to contradict each other, the share that does; and the share of
    contradicting pairs that was found."""

    precision: float
    recall: float


def load_pairs() -> Mapping[str, Sequence[Pair]]:
    """Pairs of facts that contradict each other, and pairs that may both hold."""
    document = json.loads(_FILE.read_text())
    return {name: [(first, second) for first, second in pairs] for name, pairs in document.items()}


def cosines(embedder: Embedder, pairs: Sequence[Pair]) -> list[float]:
    """The cosine of each pair."""
    vectors = embedder.embed([text for pair in pairs for text in pair], timeout=60.0)
    return [sumprod(*vectors[n : n + 2]) for n in range(0, len(vectors), 2)]


def score_test(pairs: Mapping[str, Sequence[Pair]]) -> Score:
    """What the deterministic test is worth, without a threshold."""
    results = {
        name: sum(explain_contradiction(*pair) is not None for pair in group)
        for name, group in pairs.items()
    }
    right = results["contradicting"]
    return Score(right / max(1, sum(results.values())), right / len(pairs["contradicting"]))


def choose_threshold(contradicting: Sequence[float]) -> float:
    """The highest hundredth that nine of ten contradicting pairs reach."""
    tenth = sorted(contradicting)[len(contradicting) // 10]
    return floor(100 * tenth) / 100


def main() -> None:
    """Print both."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    from strandline.config import ServiceSettings

    pairs = load_pairs()
    embedder = make_embedder(
        ServiceSettings(
            database_url="", bucket="", key_secret="a bench has no secrets to keep, but 32 letters"
        )
    )
    near = {name: cosines(embedder, group) for name, group in pairs.items()}
    own = derive_thresholds(measure_space(embedder)).conflict
    threshold = choose_threshold(near["contradicting"])
    print(
        f"{embedder.space}: conflict={threshold:g} by these pairs, {own:g} by the space's figures"
    )
    print("| cosine at least | of contradicting pairs | of compatible pairs |\n|--:|--:|--:|")
    for cut in sorted({*_CUTS, own}):
        shares = [sum(c >= cut for c in near[n]) / len(near[n]) for n in pairs]
        print(f"| {cut:g} | {shares[0]:.2f} | {shares[1]:.2f} |")
    score = score_test(pairs)
    print(f"deterministic test: precision {score.precision:.2f}, recall {score.recall:.2f}")
    for name, group in pairs.items():
        wrong = [
            p for p in group if (explain_contradiction(*p) is None) == (name == "contradicting")
        ]
        for pair, cosine in zip(group, near[name], strict=True):
            if pair in wrong:
                print(f"  {name}, not so found ({cosine:.2f}): {pair[0]} / {pair[1]}")


if __name__ == "__main__":
    main()
