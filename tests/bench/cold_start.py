"""How long a function takes from nothing to its first answer, out of its built layers.

    python -m tests.bench.cold_start [--runs 15] [functions…]

Each run is a new process under Lambda's runtime client, its files in the machine's cache, on a
database and an AWS of this machine: no network, no TLS, no placing of a sandbox by Lambda, whose
init phase has a whole CPU where these have what the machine leaves them. CPU times are therefore
told beside the clock's, and the machine's load.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from layers import build
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from tests.lambda_runtime import ARCH, LambdaFunction
from tests.support import EVENTS, KEY_SECRET, TEMPLATE, Gateway, ScratchDatabase, make_template

FIRST = {"ingest": "ingest.json", "query": "query_recall.json", "worker": "worker.json"}
"""The event that each of them meets first: an append, a recall by meaning, a message."""
_OPENED = (
    "select extract(epoch from max(backend_start))::float8 from pg_stat_activity where usename = %s"
)


class Start(NamedTuple):
    """One cold start, in seconds since the process was asked for."""

    ready: float
    """Its init phase is done: it asks for an event."""
    ready_cpu: float
    connected: float
    """The database has let it in; its first statement follows within a millisecond."""
    answered: float
    answered_cpu: float


_GIVEN = ("AWS_", "STRANDLINE_EMBEDDING_")
"""What a function gets of this environment: with `STRANDLINE_EMBEDDING_MODEL` another model."""


@contextmanager
def world() -> Generator[tuple[ScratchDatabase, dict[str, str]]]:
    """A database, a bucket and a queue, and what a function is told of them."""
    directory = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    directory.chmod(0o711)
    try:
        with (
            EmbeddedPostgres(directory / "pg", durable=False) as server,
            LocalAws(directory) as aws,
        ):
            make_template(server)
            base = ScratchDatabase(server, TEMPLATE)
            values = {name: value for name, value in os.environ.items() if name.startswith(_GIVEN)}
            yield (
                base,
                values
                | {
                    "STRANDLINE_DATABASE_URL": base.url,
                    "STRANDLINE_BUCKET": aws.bucket,
                    "STRANDLINE_WORK_QUEUE_URL": aws.work_queue_url,
                    "STRANDLINE_KEY_SECRET": KEY_SECRET,
                },
            )
    finally:
        shutil.rmtree(directory)


def event(name: str, key: str) -> Any:
    """Its first event; an append is a new one each time."""
    text = (EVENTS / FIRST[name]).read_text().replace("strandline_REPLACED-BY-THE-TEST", key)
    document = json.loads(text)
    if name == "ingest":
        body = json.loads(document["body"]) | {"source_event_key": str(uuid.uuid4())}
        document["body"] = json.dumps(body)
    return document


def start(name: str, environment: dict[str, str], base: ScratchDatabase, key: str) -> Start:
    """One process, from nothing to its first answer."""
    began, clock = time.time(), time.perf_counter()
    with LambdaFunction(name, environment) as function:
        function.wait_until_ready()
        ready, ready_cpu = time.perf_counter() - clock, function.cpu_seconds()
        answer = function.invoke(event(name, key))
        answer_time, answered_cpu = time.perf_counter() - clock, function.cpu_seconds()
        assert not answer.failed, answer
        assert answer.payload.get("statusCode", 200) < 300, answer
        ((connection,),) = base.rows(_OPENED, "strandline_app")
        return Start(ready, ready_cpu, connection - began, answer_time, answered_cpu)


def main() -> None:
    """Measure and print medians."""
    parser = argparse.ArgumentParser(description="Measure cold starts.")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("functions", nargs="*", default=["ingest", "query"])
    options = parser.parse_args()
    build.build_functions()
    build.build(ARCH)
    print("ms, medians    | ready (CPU) | first SQL | answered (CPU) | load")
    with world() as (base, environment):
        front = Gateway(base.url)
        key = front.key()
        front.database.close()
        for name in options.functions:
            runs = [start(name, environment, base, key) for _ in range(options.runs)]
            ready, ready_cpu, connected, answer, answered_cpu = (
                round(1000 * statistics.median(values)) for values in zip(*runs, strict=True)
            )
            load = os.getloadavg()[0]
            row = f"{ready} ({ready_cpu}) | {connected} | {answer} ({answered_cpu}) | {load:.1f}"
            print(f"{name:14} | {row}")


if __name__ == "__main__":
    main()
