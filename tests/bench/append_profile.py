"""Where the time of one append goes: in the process by part, in the database by statement.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.append_profile FILE
"""

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from strandline.auth import store_tenants_and_keys
from strandline.db.database import Caller
from strandline.embeddings.minilm import LocalEmbedder
from strandline.http import request as http_request
from strandline.http.request import Request
from strandline.local.postgres import EmbeddedPostgres
from strandline.log import append, event_builder, event_draft
from strandline.log import routes_write as log_routes_write
from strandline.log import store as log_store
from strandline.observability import logger
from tests.bench import locomo, strandline_system
from tests.bench.cost_sides import StrandlineSide, log_to_nowhere

COUNTED = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "all",
}
PARTS: tuple[tuple[Any, str, str], ...] = (
    (Request, "authorize", "who asks"),
    (http_request, "parse_json", "the body's JSON"),
    (append, "validate", "the body's shape"),
    (event_draft, "build_draft", "canonical form"),
    (event_builder, "build_event", "CID, fingerprint"),
    (log_store, "append_events", "the database call"),
    (log_routes_write, "append", "the service function, with those between"),
    (logger, "info", "the log line"),
)
STATEMENTS = """
select round(1000 * mean_exec_time)::int, calls, round(shared_blks_hit / calls::numeric)::int,
    left(regexp_replace(query, '\\s+', ' ', 'g'), 90)
from pg_stat_statements where calls >= %s order by total_exec_time desc limit 24
"""
WARM, TIMED = 60, 300


def main() -> None:
    """Print both tables; times in microseconds."""
    conversation = locomo.load(Path(sys.argv[1]))[0]
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        for settings in ({}, COUNTED):  # counting statements costs too: not in the same run
            place = directory / str(len(settings))
            with (
                EmbeddedPostgres(place, settings=settings) as server,
                strandline_system.open_strandline(server, LocalEmbedder(), directory) as system,
                log_to_nowhere(),
            ):
                side = StrandlineSide(system, conversation.speakers)
                for call in side.writes("warm", conversation.turns, 100):
                    call()
                side.analyze()
                calls = side.writes("parts", conversation.turns[: WARM + TIMED], 1)
                for call in calls[:WARM]:
                    call()
                (_by_statement if settings else _by_part)(system, calls[WARM:])


def _by_part(system: strandline_system.Strandline, calls: list[Callable[[], object]]) -> None:
    took: defaultdict[str, list[float]] = defaultdict(list)

    def time_calls(what: str, function: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object, **options: object) -> object:
            began = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                took[what].append(time.perf_counter() - began)

        return run

    access = system.gateway.database.connect_as(Caller.background("parts"))
    for _ in calls:
        time_calls("a round trip with settings alone", store_tenants_and_keys.get_tenant)(access)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, what in PARTS:
            patch.setattr(owner, name, time_calls(what, getattr(owner, name)))
        for call in calls:
            time_calls("the whole call", call)()
    for what, seconds in took.items():
        print(f"{median(seconds) * 1e6:8.0f}  {what}")


def _by_statement(system: strandline_system.Strandline, calls: list[Callable[[], object]]) -> None:
    system.base.rows("create extension pg_stat_statements")
    system.base.rows("select pg_stat_statements_reset()")
    for call in calls:
        call()
    print("\n us each, calls, buffers, statement (without setting it up, which is not counted)")
    for row in system.base.rows(STATEMENTS, len(calls)):
        print("{:8d} {:6d} {:6d}  {}".format(*row))


if __name__ == "__main__":
    main()
