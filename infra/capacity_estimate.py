"""The load that one stack can serve, computed from measured figures: `make scale` writes the table
of docs/scale.md."""

import sys
from dataclasses import dataclass
from pathlib import Path

from infra.prices import (
    CORES_PER_UNIT,
    CPU_OF_EVENT,
    CPU_OF_RECALL,
    FIGURES,
    LARGE_VIEW,
    PRICES,
    WORKER_SECONDS,
)
from infra.settings import RECALLS_PER_UNIT
from strandline.function_specs import FUNCTIONS

DOCUMENT = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- scale: written by `make scale` -->", "<!-- end of scale -->"
UNITS = (4, 16, 64, 256)
"""Maximum capacities: the default, that of `prod`, and on to Aurora's limit."""
BUSY = 0.7
"""Share of the cores that may be in use at a peak."""
CACHE_SHARE = 0.75
"""Share of a unit's 2 GiB that caches pages (Aurora User Guide, shared buffers)."""
EVENT_KB = 5
"""What an event takes in the database, with its vector, words and share of derived rows."""
EVENTS_PER_TENANT_DAY = 1000
RECALLS_PER_TENANT_DAY = 500
PEAK = 4.0
"""How much busier the busiest hour is than the average one."""


@dataclass(frozen=True)
class StackCapacity:
    """The load that a stack of one maximum capacity can serve."""

    units: int

    @property
    def usable_cores(self) -> float:
        """The database's cores that may be in use."""
        return self.units * CORES_PER_UNIT * BUSY

    @property
    def recalls_per_second(self) -> float:
        """Recalls a second, if there is nothing else."""
        return self.usable_cores / CPU_OF_RECALL

    @property
    def events_per_second(self) -> float:
        """Events a second, if there is nothing else."""
        return self.usable_cores / CPU_OF_EVENT

    @property
    def worker_instances(self) -> int:
        """Instances of the worker that embed and fold that many events."""
        return -(-int(self.events_per_second * WORKER_SECONDS * 1000) // 1000)

    @property
    def accepted_requests_per_second(self) -> float:
        """Requests a second that the gateway accepts by default."""
        return RECALLS_PER_UNIT * self.units

    @property
    def tenants_at_peak(self) -> int:
        """Tenants of the assumed use, at their busiest hour, to two digits."""
        seconds = EVENTS_PER_TENANT_DAY * CPU_OF_EVENT + RECALLS_PER_TENANT_DAY * CPU_OF_RECALL
        exact = self.usable_cores / (seconds * PEAK / 86_400)
        step = 10 ** (len(str(int(exact))) - 2)
        return int(exact / step) * step

    @property
    def cached_tenants(self) -> int:
        """Tenants whose recalls read no storage, of callers who see many events."""
        cache = self.units * 2 * 2**30 * CACHE_SHARE
        return int(cache / FIGURES.recall[LARGE_VIEW].hot_bytes)

    @property
    def gigabytes_a_year(self) -> float:
        """What these tenants add to the database in a year."""
        return self.tenants_at_peak * EVENTS_PER_TENANT_DAY * 365 * EVENT_KB / 1e6

    @property
    def usd_a_month_at_maximum(self) -> float:
        """The maximum capacity, if it never fell."""
        return self.units * 730 * PRICES["acu"].usd


def render_capacity_table() -> str:
    """The generated part of the document."""
    reserved = next(fn.reserved_concurrency for fn in FUNCTIONS if fn.name == "worker")
    rows = [
        f"| {cell.units} | {cell.recalls_per_second:,.0f} "
        f"| {cell.accepted_requests_per_second:,.0f} | {cell.events_per_second:,.0f} "
        f"| {cell.worker_instances:,} | {cell.tenants_at_peak:,} "
        f"| {cell.cached_tenants:,} | {cell.gigabytes_a_year:,.0f} "
        f"| {cell.usd_a_month_at_maximum:,.0f} |"
        for cell in map(StackCapacity, UNITS)
    ]
    return "\n".join(
        (
            BEGIN,
            "| `max_capacity` | recalls/s | `throttle_rate` | events/s | workers | tenants "
            "| tenants in cache | GB a year | USD a month at most, each instance |",
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            f"The worker has {reserved} reserved instances, which embed and fold "
            f"{reserved / WORKER_SECONDS:,.0f} events a second: more need `reserved.worker`, and "
            "with it connections.",
            END,
        )
    )


def replace_table_in_document(document: str) -> str:
    """The document with today's table. Raises ValueError if its markers are missing."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{DOCUMENT.name} has no {BEGIN} … {END}: put both in their place")
    return before + render_capacity_table() + after


if __name__ == "__main__":
    DOCUMENT.write_text(replace_table_in_document(DOCUMENT.read_text()))
    sys.stdout.write(f"{DOCUMENT.name} has the table\n")
