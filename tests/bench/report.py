"""What a run of the bench leaves: a table to read, and a file that grows key by key."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.locomo import CATEGORIES, MEASURES

COLUMNS = (*MEASURES, *(f"{category} R@10" for category in CATEGORIES.values()))

# Measured elsewhere on LoCoMo's dev half (its conversations 26, 41, 43, 47 and 49), and over lists
# of 200 where a run here gives 20: MRR and session hit of a run are lower by at most 0.01 for it.
REFERENCES: Mapping[str, Sequence[float | None]] = {
    "BM25": (0.461, 0.541, 0.629, 0.396, 0.858, 0.269),
    "cosine, MiniLM int8": (0.398, 0.485, 0.602, 0.315, 0.761, 0.264),
    "Postgres full text, with the turn before": (0.606, 0.684, 0.751, 0.517, 0.905, 0.376),
    "best plain SQL: that and cosine, fused": (0.631, 0.719, 0.782, 0.525, 0.930, 0.410),
}


WRITERS = "writers4"
COSTS: Mapping[str, str] = {
    "write_ms": "write",
    "write_batch_ms": "write, in batches of 100, an event",
    "search_p50_ms": "search p50",
    "search_p95_ms": "search p95",
}


def table(quality: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: the systems measured, then the references."""
    yield f"| LoCoMo, categories 1-4 | {' | '.join(COLUMNS)} | questions |"
    yield "|---" * (len(COLUMNS) + 2) + "|"
    for system, result in quality.items():
        by_category = result["by_category"]
        figures = [result[name] for name in MEASURES]
        figures += [by_category[category]["R@10"] for category in CATEGORIES.values()]
        yield f"| {system} | {' | '.join(map(_figure, figures))} | {result['questions']} |"
    for name, reference in REFERENCES.items():
        figures = [*reference, *[None] * (len(COLUMNS) - len(reference))]
        yield f"| reference: {name} | {' | '.join(map(_figure, figures))} | |"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def cost_table(cost: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Lines of Markdown: what a call costs on each side and how many times the bare one that is;
    then the writers."""
    if not cost:
        return
    sides = [name for name in cost if name != WRITERS]
    yield f"| cost of a call, ms | {' | '.join(COSTS.values())} |"
    yield "|---" * (len(COSTS) + 1) + "|"
    for name in sides:
        yield f"| {name} | {' | '.join(f'{cost[name][key]:.3f}' for key in COSTS)} |"
    for name in sides[:-1]:
        times = [cost[name][key] / cost[sides[-1]][key] for key in COSTS]
        yield f"| {name} : {sides[-1]} | {' | '.join(f'{ratio:.2f}' for ratio in times)} |"
    rates = cost[WRITERS]
    yield ""
    yield "| 4 writers (processes), 1,000 scopes | events/s | of the bare transaction |"
    yield "|---|---|---|"
    yield f"| append service function | {rates['append']:.0f} | {rates['append_share']:.0%} |"
    yield f"| through the handler | {rates['handler']:.0f} | {rates['handler_share']:.0%} |"
    yield f"| bare transaction | {rates['bare']:.0f} | |"


def write(
    path: Path, environment: Mapping[str, Any], **sections: Mapping[str, Mapping[str, Any]]
) -> None:
    """Put a run's figures into the file, beside what other sections and systems left there."""
    document: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    for name, result in {**sections, "environment": environment}.items():
        document[name] = document.get(name, {}) | result
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
