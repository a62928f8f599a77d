"""What a run of `make bench NAME=recall` measured, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.told_apart import none_table

SERVICE = "Strandline"
HELD_OUT = "Strandline, held out"
ALL = "all "
"""Before the name of a group."""
MEASURES = ("R@10", "MRR", "all@10")
_BETTER_OF = ("BM25", "BM25, by author", "cosine")


def tables(corpora: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The groups, each corpus, kinds of questions, and what is told apart."""
    groups = {name: result for name, result in corpora.items() if name.startswith(ALL)}
    single = {name: result for name, result in corpora.items() if not name.startswith(ALL)}
    parts = [_groups(groups), _each(single), _kinds(groups), _none(groups, single)]
    return [line for part in parts for line in [*part, ""]]


def ways_of(results: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """The scores of a corpus by what ranks it."""
    return {SERVICE: results, HELD_OUT: results["held_out"]["held_out"], **results["plain"]}


def below(scores: Mapping[str, float], ways: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The measures in which scores are below the better of BM25 and cosine alone."""
    return [
        name
        for name in ("R@10", "MRR")
        if scores[name] < max(ways[way][name] for way in _BETTER_OF)
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(cells: Sequence[str]) -> list[str]:
    return [_line(cells), "|---" * len(cells) + "|"]


def _groups(groups: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = _head(
        ["R@10 / MRR / all@10", *(f"{name}, {row['questions']}" for name, row in groups.items())]
    )
    ways = {name: ways_of(group) for name, group in groups.items()}
    for way in next(iter(ways.values()), ()):
        cells = [" / ".join(f"{of[way][name]:.3f}" for name in MEASURES) for of in ways.values()]
        lines.append(_line([way, *cells]))
    return lines


def _each(corpora: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for name, result in sorted(corpora.items(), key=lambda item: (item[1]["group"], item[0])):
        ways = ways_of(result)
        lines = lines or _head(["R@10 / MRR", *ways, "below the better of BM25 and cosine"])
        cells = [f"{scores['R@10']:.3f} / {scores['MRR']:.3f}" for scores in ways.values()]
        short = [
            f"{way}: {', '.join(less)}"
            for way in (SERVICE, HELD_OUT)
            if (less := below(ways[way], ways))
        ]
        lines.append(_line([f"{result['group']}: {name}", *cells, "; ".join(short)]))
    return lines


def _kinds(groups: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = _head(["by kind", *MEASURES, "R@10, held out", "MRR, held out"])
    for name, group in groups.items():
        for kind, scores in group["by_kind"].items():
            without = group["held_out"]["by_kind"][kind]
            values = [*(scores[m] for m in MEASURES), without["R@10"], without["MRR"]]
            cells = [f"{value:.3f}" for value in values]
            lines.append(_line([f"{name}: {kind}", *cells]))
    return lines


def _none(
    groups: Mapping[str, Mapping[str, Any]], single: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    rows = [(name, result["elsewhere"]) for name, result in [*groups.items(), *single.items()]]
    rows += [
        (f"{name}, held out", group["held_out"]["elsewhere"]) for name, group in groups.items()
    ]
    own = [
        f"{name}: of {result['none_questions']} questions of kind none, refused by default: "
        f"{result['none_refused']:.3f}"
        for name, result in [*groups.items(), *single.items()]
        if result["none_questions"]
    ]
    return [*none_table(rows), "", *own]
