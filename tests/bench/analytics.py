"""What the analytics take: time, memory and how well planted communities are found, at graphs of
1,000, 10,000 and 100,000 nodes with five edges a node, a tenth of which crosses communities.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.analytics 1000 10000 100000

Each size is one scope of a tenant, so that a run analyses the graph twice: the scope's and the
tenant's. It runs in a process of its own, as the function does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from strandline.graph.communities.label_propagation import WeightedLink
from strandline.local.postgres import EmbeddedPostgres
from strandline.participants import derive_scope_id
from tests.strandline.graph.planted import agreement, plant
from tests.support import KEY_SECRET, TEMPLATE, ScratchDatabase, make_template

SIZES = (1_000, 10_000, 100_000)
EDGES_PER_NODE = 5
CROSSING = 0.1
COMMUNITY = 100
MEMBERS = ["user:ada"]
_RUN = """
import json, re, sys, time
from datetime import UTC, datetime
begin = time.monotonic()
from strandline.graph.communities import analytics
imported = time.monotonic() - begin
from strandline.jobs import runner, multi_tenant_runs
from strandline.jobs.worker_resources import JobMetrics
from strandline.resources import Resources

def peak():
    # Not getrusage: its maximum includes that of the process before exec.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024

resources, now, tally, idle = Resources(), datetime.now(UTC), JobMetrics(), peak()
multi_tenant_runs.begin_run_in_tenants(
    resources.database, "analytics", sys.argv[2], {sys.argv[1]: 1}, now,
    multi_tenant_runs.JobClaimsByTenant(),
)
begin = time.monotonic()
shard = runner.Shard(sys.argv[1])
runner.run_shard(resources, analytics, sys.argv[2], shard, now, begin + 880, tally)
seconds = time.monotonic() - begin
print(json.dumps({"imported": imported, "seconds": seconds, "idle": idle, "peak": peak(),
    **tally.counters}))
"""


@dataclass(frozen=True)
class Figures:
    """What a size took."""

    nodes: int
    edges: int
    seconds: float
    """For both graphs, with reading and storing."""
    propagation: float
    """Of these, label propagation."""
    scores: float
    """Of these, ranks and bridges."""
    idle_mb: float
    """Of memory, once everything is imported."""
    peak_mb: float
    import_seconds: float
    communities: int
    agreement: float
    """With the planted communities: the adjusted Rand index."""


def main() -> None:
    """Measure every size, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.analytics", description=__doc__)
    parser.add_argument("sizes", type=int, nargs="*", default=list(SIZES), metavar="NODES")
    sizes: Sequence[int] = parser.parse_args().sizes
    with tempfile.TemporaryDirectory(prefix="strandline-analytics-") as name:
        Path(name).chmod(0o711)  # the database runs as another account
        with EmbeddedPostgres(Path(name) / "postgres") as server:
            make_template(server)
            base = ScratchDatabase(server, TEMPLATE)
            for line in table([measure(base, size) for size in sizes]):
                print(line)


def measure(base: ScratchDatabase, size: int) -> Figures:
    """Store a graph of this size, analyse it in a new process, and compare."""
    tenant, begin = f"t{size}", time.monotonic()
    links, truth = plant(size, max(2, size // COMMUNITY), EDGES_PER_NODE, CROSSING)
    load(base, tenant, size, links)
    print(f"{size:,} nodes loaded in {time.monotonic() - begin:.1f} s", file=sys.stderr)
    result = run(base, tenant)
    failures = base.rows("select reason from jobs where tenant_id = %s and state <> 'done'", tenant)
    assert not failures, failures
    rows = base.rows(
        "select m.community_id, n.name::int from graph_members m"
        " join graph_nodes n using (tenant_id, node_id) where m.tenant_id = %s",
        tenant,
    )
    groups: defaultdict[uuid.UUID, list[int]] = defaultdict(list)
    for community_id, number in rows:
        groups[community_id].append(number)
    return Figures(
        nodes=size,
        edges=len(links),
        seconds=result["seconds"],
        propagation=result["LabelPropagationMilliseconds"] / 1000,
        scores=result["BridgeScoreMilliseconds"] / 1000,
        idle_mb=result["idle"],
        peak_mb=result["peak"],
        import_seconds=result["imported"],
        communities=len(groups),
        agreement=agreement(list(groups.values()), truth),
    )


def load(base: ScratchDatabase, tenant: str, size: int, links: Sequence[WeightedLink]) -> None:
    """Write a graph straight into the tables, without what it rests on."""
    scope = derive_scope_id(tenant, MEMBERS)
    ids = [uuid.uuid4() for _ in range(size)]
    with psycopg.connect(base.admin_url) as administrator:
        administrator.execute("set session_replication_role = replica")
        administrator.execute("insert into tenants (tenant_id) values (%s)", [tenant])
        administrator.execute(
            "insert into scopes (tenant_id, scope_id, participants) values (%s, %s, %s)",
            [tenant, scope, MEMBERS],
        )
        cursor = administrator.cursor()
        cursor.execute("create temporary table n (node_id uuid, name text)")
        cursor.execute("create temporary table e (from_id uuid, to_id uuid, weight int)")
        with cursor.copy("copy n from stdin") as copy:
            for number, node_id in enumerate(ids):
                copy.write_row((node_id, str(number)))
        with cursor.copy("copy e from stdin") as copy:
            for first, second, weight in links:
                copy.write_row((ids[first], ids[second], weight // 80))
        cursor.execute(
            "insert into graph_nodes (tenant_id, node_id, scope_id, participants, type, name,"
            " name_hash, ordinal, identity, weight, trust, valid_from, created_at, updated_at)"
            " select %s, node_id, %s, %s, 'entity', name, sha256(name::bytea), 0,"
            " sha256(name::bytea), 1, 'user', now(), now(), now() from n",
            [tenant, scope, MEMBERS],
        )
        cursor.execute(
            "insert into graph_edges (tenant_id, edge_id, scope_id, participants, from_id, to_id,"
            " type, confidence, weight, trust, valid_from, created_at, last_seen)"
            " select %s, gen_random_uuid(), %s, %s, from_id, to_id, 'RELATES_TO', 0.8, weight,"
            " 'user', now(), now(), now() from e",
            [tenant, scope, MEMBERS],
        )
        cursor.execute("drop table n, e")
    base.rows("analyze")


def run(base: ScratchDatabase, tenant: str) -> dict[str, Any]:
    """A run of the job in one tenant, in a new process; gives what it printed."""
    child = subprocess.run(
        [sys.executable, "-c", _RUN, tenant, str(uuid.uuid4())],
        env={
            **os.environ,
            "STRANDLINE_DATABASE_URL": base.url,
            "STRANDLINE_BUCKET": "none",
            "STRANDLINE_KEY_SECRET": KEY_SECRET,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(child.stdout.splitlines()[-1])


def table(figures: Sequence[Figures]) -> list[str]:
    """The figures for the documentation."""
    lines = [
        "| nodes | edges | both graphs | label propagation | ranks and bridges | memory |"
        " communities | agreement |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {f.nodes:,} | {f.edges:,} | {f.seconds:.1f} s | {f.propagation:.1f} s |"
        f" {f.scores:.1f} s | {f.peak_mb:.0f} MB | {f.communities:,} | {f.agreement:.3f} |"
        for f in figures
    ]
    last = figures[-1]
    return [*lines, f"import: {last.import_seconds:.2f} s, {last.idle_mb:.0f} MB without a graph"]


if __name__ == "__main__":
    main()
