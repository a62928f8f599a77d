"""The bench: LoCoMo through the API and back, beside plain Postgres on the same machine: how well
it is found again, what a call costs, and what becomes of it as chains.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench beside-postgres --locomo FILE
"""

import argparse
import hashlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import psycopg

from strandline.embeddings.embedder import Embedder
from strandline.embeddings.local import LocalEmbedder
from strandline.local.postgres import EmbeddedPostgres
from tests.bench import (
    baseline_postgres,
    chains,
    concurrent_writers,
    cost,
    locomo,
    report,
    strandline_system,
    talks,
)
from tests.bench.cost import RememberingEmbedder
from tests.bench.cost_sides import BareSide, StrandlineSide, log_to_nowhere
from tests.bench.locomo import Conversation, TurnId

DATA = """\
FILE holds LoCoMo's conversations (locomo10.json of github.com/snap-research/locomo, or some of its
rows). They are licensed CC BY-NC 4.0, for non-commercial use: so they are not part of this
project, and anyone who measures brings them."""


class System(Protocol):
    """Something that remembers conversations."""

    def ranked(self, conversation: Conversation) -> Iterator[Sequence[TurnId]]:
        """Store a conversation, then give the best turns for each question, best first."""
        ...


type Opener = Callable[[EmbeddedPostgres, Embedder, Path], AbstractContextManager[System]]

SYSTEMS: Mapping[str, Opener] = {
    strandline_system.NAME: strandline_system.open_strandline,
    baseline_postgres.NAME: baseline_postgres.open_baseline,
}


def main() -> None:
    """Measure the systems asked for, print the table, write the file."""
    request = _arguments()
    try:
        conversations = locomo.load(request.locomo)
    except (OSError, locomo.UnknownShape) as error:
        sys.exit(f"bench: {error}")
    quality: dict[str, dict[str, Any]] = {}
    costs: dict[str, dict[str, float]] = {}
    embedder = RememberingEmbedder(LocalEmbedder())
    with (
        _passable_directory() as directory,
        EmbeddedPostgres(directory / "postgres") as server,
    ):
        environment = _environment(request.locomo, server, embedder)
        for name in request.systems:
            with SYSTEMS[name](server, embedder, directory) as system:
                quality[name] = _measure_system(name, system, conversations)
        if request.cost:
            costs = _costs(request, server, embedder, directory, conversations[0])
        chain_figures = (
            _chains(server, embedder, directory, conversations) if request.chains else {}
        )
    lines = [
        *report.table(quality),
        "",
        *report.cost_table(costs),
        "",
        *chains.lines(chain_figures),
    ]
    for line in lines:
        print(line)
    report.write(request.out, environment, quality=quality, cost=costs, chains=chain_figures)


def _chains(
    server: EmbeddedPostgres,
    embedder: Embedder,
    directory: Path,
    conversations: Sequence[Conversation],
) -> dict[str, dict[str, float]]:
    """How good chains are, how fast they are formed, and what a model would be asked for them."""
    result = chains.of_quality(embedder, [*talks.FITTING_SET, *talks.UNSEEN_SET])
    result |= chains.of_locomo(embedder, conversations)
    for name, model in (("forming", None), ("forming_with_a_model", chains.Counting())):
        with strandline_system.open_strandline(server, embedder, directory, name) as system:
            if model:
                chains.ask_instead(system, model)
            result[name] = chains.of_forming(system, conversations, model)
    return result


def _costs(
    options: argparse.Namespace,
    server: EmbeddedPostgres,
    embedder: Embedder,
    directory: Path,
    conversation: Conversation,
) -> dict[str, dict[str, float]]:
    """What a call costs, in databases of its own."""
    began = time.monotonic()
    names = [f"{name}_cost" for name in SYSTEMS]
    with (
        strandline_system.open_strandline(server, embedder, directory, names[0]) as ours,
        baseline_postgres.open_baseline(server, embedder, directory, names[1]) as bare,
        log_to_nowhere(),
    ):
        sides = {
            strandline_system.NAME: StrandlineSide(ours, conversation.speakers),
            "plain_insert": BareSide(bare.connection, embedder, in_order=False),
            baseline_postgres.NAME: BareSide(bare.connection, embedder),
        }
        result = cost.of_calls(
            sides, conversation, singles=options.singles, batches=options.batches, asks=options.asks
        )
        place = concurrent_writers.prepare_run(ours, bare, conversation)
        result["writers4"] = concurrent_writers.rates(
            place, rounds=options.rounds, seconds=options.seconds
        )
    print(f"cost: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return result


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench beside-postgres",
        description="Measures retrieval quality on LoCoMo (question to evidence turns), and what a "
        "call costs beside the same work in plain Postgres.",
        epilog=DATA,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--locomo", type=Path, metavar="FILE", required=True, help="the data")
    parser.add_argument(
        "--out", type=Path, default=Path("build/beside_postgres.json"), metavar="JSON"
    )
    parser.add_argument("--systems", nargs="*", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--no-cost", dest="cost", action="store_false", help="quality alone")
    parser.add_argument("--no-chains", dest="chains", action="store_false", help="without chains")
    parser.add_argument("--singles", type=int, default=400, help="appends of one event")
    parser.add_argument("--batches", type=int, default=20, help="appends of 100 events")
    parser.add_argument("--asks", type=int, default=400, help="searches")
    parser.add_argument("--rounds", type=int, default=5, help="of each kind of four writers")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each such round")
    return parser.parse_args()


@contextmanager
def _passable_directory() -> Generator[Path]:
    """A directory for the run, gone after it. Root's server runs as another account, which must get
    through to its data; else it would put it, and leave it, elsewhere."""
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        yield directory


def _measure_system(
    name: str, system: System, conversations: Sequence[Conversation]
) -> dict[str, Any]:
    """One system's quality, with a line of progress for each conversation."""
    questions: list[tuple[locomo.Question, locomo.Scores]] = []
    for n, conversation in enumerate(conversations, 1):
        began, before = time.monotonic(), len(questions)
        answers = zip(conversation.questions, system.ranked(conversation), strict=True)
        questions += [
            (question, locomo.score(question.evidence, hits)) for question, hits in answers
        ]
        line = f"{name}: {n}/{len(conversations)} {conversation.name}"
        size = f"{len(conversation.turns)} turns, {len(questions) - before} questions"
        print(f"{line}, {size}, {time.monotonic() - began:.0f} s", file=sys.stderr)
    return locomo.summary(questions)


def _environment(data: Path, server: EmbeddedPostgres, embedder: Embedder) -> dict[str, Any]:
    """What the figures depend on besides the code."""
    with psycopg.connect(server.dsn()) as connection:
        postgres = connection.info.parameter_status("server_version")
        row = connection.execute(
            "select current_setting('fsync'), current_setting('synchronous_commit')"
        ).fetchone()
    durable = row == ("on", "on")
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.platform(),
        "cpus": os.process_cpu_count(),
        "python": platform.python_version(),
        "postgres": postgres,
        "durable": durable,
        "embedding_space": embedder.space,
        "locomo_sha256": hashlib.sha256(data.read_bytes()).hexdigest(),
    }


if __name__ == "__main__":
    main()
