"""How well answers tell questions that something answers from those that nothing does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.relevance_samples import area_under_curve, calibration_error

POINTS = (2, 5, 10)
"""Points of R@10 that a threshold may cost, for the share that it refuses then."""


@dataclass(frozen=True)
class Verdict:
    """What the answer to one question says of itself, and what is true."""

    known: float
    has_answer: bool
    is_refused: bool
    """By the default threshold."""
    recall: float
    """R@10 without a threshold; 0 where nothing answers."""
    hits: Sequence[tuple[float, bool]]
    """The relevance of each hit, and whether it answers."""


def share(flags: Sequence[bool]) -> float | None:
    """How many are true; None of nothing."""
    return round(sum(flags) / len(flags), 3) if flags else None


def refused_at(home: Sequence[Verdict], away: Sequence[Verdict], points: float) -> float:
    """The share refused of what nothing answers, by the highest threshold of `known` that costs
    the questions at home at most so many points of R@10."""
    threshold, loss = 1.0, 0.0
    for verdict in sorted(home, key=lambda verdict: verdict.known):
        loss += verdict.recall / len(home)
        if loss > points / 100 + 1e-9:
            threshold = verdict.known
            break
    return sum(verdict.known < threshold for verdict in away) / len(away)


def tell_apart(home: Sequence[Verdict], away: Sequence[Verdict]) -> dict[str, Any]:
    """Questions that something answers beside the same asked where nothing does. Calibration counts
    both sides alike."""
    missing = sum(verdict.recall for verdict in home if verdict.is_refused) / len(home)
    return {
        "auc": round(area_under_curve([v.known for v in home], [v.known for v in away]), 3),
        "refused_by_default": share([verdict.is_refused for verdict in away]),
        "lost_by_default": round(missing, 3),
        **{
            f"refused_at_{points}_points": round(refused_at(home, away, points), 3)
            for points in POINTS
        },
        **calibration_errors([(v, 1 / len(side)) for side in (home, away) for v in side]),
    }


def calibration_errors(verdicts: Sequence[tuple[Verdict, float]]) -> dict[str, float]:
    """Of `known` and `relevance`, over weighted verdicts."""
    known_ids = [(verdict.known, verdict.has_answer, weight) for verdict, weight in verdicts]
    relevance = [(*hit, weight) for verdict, weight in verdicts for hit in verdict.hits]
    return {
        "calibration_error_known": round(calibration_error(known_ids), 3),
        "calibration_error_relevance": round(calibration_error(relevance), 3),
    }


def none_table(rows: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """As Markdown: what `tell_apart` gives, a row for each corpus."""
    names = list(rows[0][1]) if rows else []
    heads = " | ".join(name.replace("_", " ") for name in names)
    lines = [f"| told apart | {heads} |", "|---" * (len(names) + 1) + "|"]
    for name, measures in rows:
        lines.append(f"| {name} | {' | '.join(f'{measures[column]:.3f}' for column in names)} |")
    return lines
