"""`make bench NAME=…`: one measurement by its name; without a name, the list of them.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench [NAME [options of that measurement]]
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple


class Bench(NamedTuple):
    """A measurement: its module in `tests.bench`, and what it measures."""

    module: str
    purpose: str


BENCHES: Mapping[str, Bench] = {
    "recall": Bench("recall_quality", "how well recall answers, beside plain rankings"),
    "held-out": Bench("held_out", "the same by weights chosen without what is asked"),
    "weights": Bench("recall_weights", "recency and importance in recall's order"),
    "reading": Bench("reading", "write what readers answer questions from"),
    "deep": Bench("deep_reading", "whether answers deep in long texts are found and shown"),
    "blind": Bench("blind", "what a reader answers sixty blind questions from"),
    "breadth": Bench("breadth", "lists, orders and summaries, with breadth and without"),
    "references": Bench("references_quality", "how well the references query answers"),
    "changes": Bench("changes", "whether the current value is told, never a stale one alone"),
    "cases": Bench("cases", "80 small logs: noise, duplicates, changes, scripts"),
    "chains": Bench("chains", "how well topics are cut and named"),
    "graph-extraction": Bench("graph_extraction", "what the heuristic model extracts"),
    "graph-reading": Bench("graph_reading", "what the graph gives to recall and contexts"),
    "conflicts": Bench("conflicts", "how well contradicting facts are found"),
    "beside-postgres": Bench("beside_postgres", "search and the cost of calls beside plain SQL"),
    "database-cpu": Bench("database_cpu", "the database's CPU and pages of recalls and events"),
    "growth": Bench("growth", "how recall and the topic index grow: 1000 10000 100000"),
    "graph": Bench("graph", "search and traversal of the graph beside bare SQL: 100000"),
    "analytics": Bench("analytics", "the graph's analytics: 1000 10000 100000"),
    "hooks": Bench("hooks", "how long the hooks of coding agents take"),
    "cold-start": Bench("cold_start", "cold starts from the built layers: ingest query"),
    "calibrate": Bench("calibrate", "thresholds of the embedding space that is set"),
    "spaces": Bench("shared_weights", "one set of weights and curves in each embedding space"),
    "fit-relevance": Bench("fit_relevance", "fit recall's weights to the corpora of recall"),
    "fit-heuristic": Bench("fit_heuristic", "fit the heuristic model's weights"),
    "pictures": Bench("command_pictures", "draw the command line into docs/cli-*.svg"),
}


def list_benches() -> str:
    """What there is, a line each."""
    width = max(map(len, BENCHES))
    lines = [f"  {name:{width}}  {bench.purpose}" for name, bench in BENCHES.items()]
    return "\n".join(
        (
            'make bench NAME=… [ARGS="…"], with LOCOMO=<file> TALKS=<folder> BEAM=<clone> '
            "VECTORS=<file> for those that take them (ARGS=--help):",
            *lines,
        )
    )


def main(arguments: Sequence[str]) -> str | int | None:
    """Run the measurement that the first argument names. Returns its exit code, or what is wrong if
    there is none of that name."""
    if not arguments:
        print(list_benches())
        return None
    name, *options = arguments
    if name not in BENCHES:
        return f"NAME: there is no bench {name}.\n{list_benches()}"
    module = f"tests.bench.{BENCHES[name].module}"
    sys.argv = [module, *options]
    return import_module(module).main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
