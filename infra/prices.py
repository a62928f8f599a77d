"""What a deployment costs, as units at prices: of a month without calls, and of use.
infra/price_list.py has the unit prices, infra/cost_tables.py writes the tables of docs/cost.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.database_figures import read_database_figures
from infra.price_list import BEDROCK_EMBEDDINGS, PRICES
from infra.settings import RECALLS_PER_UNIT
from strandline.function_specs import FUNCTIONS, JOBS
from strandline.jobs.runner import Shard, pack_shards_into_items

HOURS = 730.0
"""Hours of a month, as AWS counts them."""

ENDPOINTS = 2
"""Interface endpoints of `network=endpoints`: SQS and Secrets Manager."""
SECRETS = 3
"""Secrets of the settings, the first key and the master user."""
ALARM_METRICS = 35
"""Metrics that alarms use without a language model. A test counts them in the template."""
SWEEP_METRICS = 9
"""Metrics that a sweep prints, the only use of a stage at rest. A test counts them in its lines."""
USE_METRICS = 84
"""Those of a stage whose agents append, recall, ask contexts and use a tool, with the worker and
all jobs behind them. A test counts them in the functions' lines."""
S3_METRICS = 16
"""Request metrics of a bucket (S3 User Guide, "Amazon S3 request metrics in CloudWatch"), billed as
custom metrics in the hours that have requests."""
CORES_PER_UNIT = 0.25
"""Cores of a capacity unit: an assumption, AWS gives no figure."""
FIGURES = read_database_figures()
"""What the database does for a call, as measured."""
USUAL_VIEW, LARGE_VIEW = 1_000, 5_000
"""Events that the caller of a recall sees: where nothing else is said, and many."""
CPU_OF_EVENT = FIGURES.event.database_ms / 1000
CPU_OF_RECALL = FIGURES.recall[USUAL_VIEW].database_ms / 1000
"""The database's CPU for an event with everything that follows, and for a recall, in seconds."""
_USED_SHARE = 0.3
"""Share of a unit's cores that is in use on average."""
POLLS = 2 * 5 * HOURS * 3600 / 20
"""Calls of SQS a month by which Lambda waits for messages: five pollers for each of two queues,
20 seconds a call."""

_MEMORY = {fn.name: fn.memory / 1024 for fn in FUNCTIONS}


@dataclass(frozen=True)
class CostItem:
    """A number of units at a price."""

    price: str
    units: float
    why: str

    @property
    def total_usd(self) -> float:
        """The cost of the units."""
        return PRICES[self.price].usd * self.units


NETWORKS: Mapping[str, Sequence[CostItem]] = {
    "`endpoints`, one zone (default)": (CostItem("endpoint", ENDPOINTS * HOURS, "two endpoints"),),
    "`endpoints`, two zones": (CostItem("endpoint", 2 * ENDPOINTS * HOURS, "two, in two zones"),),
    "`nat`": (CostItem("nat", HOURS, "one gateway"), CostItem("address", HOURS, "its address")),
    "`existing`": (),
}
BEDROCK_ENDPOINT: Sequence[CostItem] = (
    CostItem("endpoint", HOURS, "one more endpoint of `endpoints`, in each of its zones"),
)

PAUSED_COSTS: Sequence[CostItem] = (
    CostItem("acu", 31 * 6 / 60, "the daily sweep, 6 minutes at 1 unit, 31 times"),
)
FIXED_COSTS: Sequence[CostItem] = (
    CostItem("storage", 10, "a database of 10 GB at most"),
    CostItem("secret", SECRETS, "three secrets"),
    CostItem("alarm", ALARM_METRICS, "the alarms' metrics"),
    CostItem("dashboard", 1, "one dashboard"),
    CostItem(
        "metric",
        (SWEEP_METRICS + S3_METRICS) * 31 / HOURS,
        f"{SWEEP_METRICS + S3_METRICS} metrics in the hour of each sweep, "
        f"{S3_METRICS} of them S3's",
    ),
    CostItem("message", POLLS, "Lambda's waiting for messages of two queues"),
)

IDLE: Sequence[CostItem] = (*PAUSED_COSTS, *FIXED_COSTS)
PROD_UNITS = 2 * 2
"""Minimum of the stage `prod` in cdk.json: a writer and a reader. A test compares it."""
PROD: Sequence[CostItem] = (CostItem("acu", PROD_UNITS * HOURS, "two units, twice, all month"),)
FIREWALL: Sequence[CostItem] = (
    CostItem("web_acl", 1, "one web ACL"),
    CostItem("web_rule", 2, "two rules"),
)
"""What `firewall` costs in a month. A test counts the rules in the template."""
KEY: Sequence[CostItem] = (CostItem("key", 1, "one KMS key"),)

MILLION = 1e6
WORKER_SECONDS = 0.045
"""The worker's CPU for an event: embedding by the two included models is most of it."""
_WORKER_WHY = f"{1000 * WORKER_SECONDS:.0f} ms of the worker"


def _convert_cpu_seconds_to_acu_hours(seconds: float) -> float:
    """Hours of a capacity unit for so many seconds of CPU."""
    return seconds / CORES_PER_UNIT / _USED_SHARE / 3600


EVENTS: Sequence[CostItem] = (
    CostItem("request", MILLION, "a call of its own"),
    CostItem("invocation", MILLION, ""),
    CostItem("gb_second", MILLION * 0.010 * _MEMORY["ingest"], "10 ms of ingest"),
    CostItem("message", 3 * MILLION / 10, "a tenth of a queue message (sent, received, deleted)"),
    CostItem("invocation", MILLION / 10, ""),
    CostItem("gb_second", MILLION * WORKER_SECONDS * _MEMORY["worker"], _WORKER_WHY),
    CostItem(
        "acu",
        MILLION * _convert_cpu_seconds_to_acu_hours(CPU_OF_EVENT),
        f"{FIGURES.event.database_ms:.1f} ms of the database's CPU",
    ),
    CostItem("io", 10 * MILLION, "10 I/Os"),
    CostItem("storage", 5, "5 KB kept for a month"),
    CostItem("log", 1.5, "1.5 KB of log"),
)


def _make_database_costs(in_view: int, *, is_cold: bool = False) -> Sequence[CostItem]:
    """What a million recalls cost of the database, by callers who see so many events."""
    figures = FIGURES.recall[in_view]
    return (
        CostItem(
            "acu",
            MILLION * _convert_cpu_seconds_to_acu_hours(figures.database_ms / 1000),
            f"{figures.database_ms:.1f} ms of the database's CPU",
        ),
        CostItem("io", figures.cold_pages * MILLION, f"{figures.cold_pages:,} I/Os")
        if is_cold
        else CostItem("io", 2 * MILLION, "2 I/Os"),
    )


_RECALL_CALLS: Sequence[CostItem] = (
    CostItem("request", MILLION, "a call of its own"),
    CostItem("invocation", MILLION, ""),
    CostItem("gb_second", MILLION * 0.060 * _MEMORY["query"], "60 ms of query"),
    CostItem("log", 1.5, "1.5 KB of log"),
    CostItem("out", 8, "8 KB of answer"),
)
RECALLS: Sequence[CostItem] = (*_RECALL_CALLS, *_make_database_costs(USUAL_VIEW))
LARGE_RECALLS: Sequence[CostItem] = (*_RECALL_CALLS, *_make_database_costs(LARGE_VIEW))
COLD_RECALLS: Sequence[CostItem] = (
    *_RECALL_CALLS,
    *_make_database_costs(LARGE_VIEW, is_cold=True),
)
TOOL_CALLS: Sequence[CostItem] = (
    CostItem("request", MILLION, "a call of its own"),
    CostItem("invocation", MILLION, ""),
    CostItem("gb_second", MILLION * 0.065 * _MEMORY["mcp"], "65 ms of mcp"),
    *_make_database_costs(USUAL_VIEW),
    CostItem("log", 3, "3 KB of log"),
    CostItem("out", 6, "6 KB of answer"),
)
TOKENS_OF_EVENT, TOKENS_OF_QUESTION = 100, 20
"""What is embedded of an event (400 characters: its text in context, its share of summaries) and of
a question."""
CHAT_TOKENS_OF_EVENT, CHAT_ANSWER_TOKENS_OF_EVENT = 103, 110 * 60 / 1000
"""What a language model reads and writes for an event: 110 calls and 103,000 tokens for 1,000
events (docs/chains.md), and 60 tokens an answer, an assumption."""
EMBEDDED_BY_BEDROCK: Mapping[str, Sequence[CostItem]] = {
    model: (CostItem(model, TOKENS_OF_EVENT * MILLION, "100 tokens embedded"),)
    for model in BEDROCK_EMBEDDINGS
}
FORMED_BY_BEDROCK: Sequence[CostItem] = (
    CostItem("amazon.nova-lite-v1:0 in", CHAT_TOKENS_OF_EVENT * MILLION, "103 tokens read"),
    CostItem("amazon.nova-lite-v1:0 out", CHAT_ANSWER_TOKENS_OF_EVENT * MILLION, "6.6 written"),
)
BUSY_MINUTES = 31 * 8 * 60
"""Minutes of a month of eight busy hours a day."""
RUNS: Mapping[str, float] = {
    job.name: BUSY_MINUTES / (job.min_spacing.total_seconds() / 60) for job in JOBS
}
"""By job the most runs in these: one at the end of each of its least spacings."""


def count_run_transitions(tenants: int) -> int:
    """State transitions of a run with work in so many tenants: start, plan, choice, map, finish and
    end, and of each item its state and its end."""
    return 6 + 2 * len(pack_shards_into_items([Shard("", number) for number in range(tenants)]))


RUN_COSTS: Mapping[int, Sequence[CostItem]] = {
    tenants: [
        CostItem("transition", runs * count_run_transitions(tenants), name)
        for name, runs in RUNS.items()
    ]
    for tenants in (1, 1000)
}
"""By the number of tenants in which each run of a job has work."""
STRANGER_RATE = RECALLS_PER_UNIT * 4
"""Requests a second that a stage of 4 units takes from all callers."""


def _count_strangers_costs(rate: float) -> Sequence[CostItem]:
    """A day of so many requests a second without a valid key."""
    requests = rate * 86_400
    return (
        CostItem("request", requests, "a call"),
        CostItem("invocation", requests, ""),
        CostItem("gb_second", requests * 0.005 * _MEMORY["query"], "5 ms to refuse it"),
        CostItem("log", requests * 1.5e-6, "1.5 KB of log"),
    )


STRANGERS: Mapping[str, Sequence[CostItem]] = {
    "": _count_strangers_costs(STRANGER_RATE),
    ", with `firewall`": (
        *_count_strangers_costs(STRANGER_RATE / 2),
        CostItem("web_request", STRANGER_RATE * 86_400, "the firewall's look at all of them"),
    ),
}
"""Behind a firewall one address reaches the functions at a tenant's rate, half of the stage's."""
RECORDS: Sequence[CostItem] = (CostItem("storage", 0.5, "5 KB each"),)
AWAKE_COSTS: Sequence[CostItem] = (CostItem("acu", HOURS, "one unit, all month"),)
METRICS: Sequence[CostItem] = (
    CostItem(
        "metric",
        USE_METRICS + S3_METRICS,
        f"{USE_METRICS + S3_METRICS} metrics, {S3_METRICS} of them S3's",
    ),
)


DUES_MINUTES = (0, 10, 30, 45, 60)
"""When after the end of a conversation the database is woken: by it, and as its bytes are counted,
its lane closes, its chain is built, and its nodes are promoted (tests/prove/test_idle.py)."""
_TALK_MINUTES, _RUN_MINUTES, _PAUSE_MINUTES = 5, 1, 5
"""What a conversation and a run take, and what the database waits before it pauses."""


def count_awake_minutes_of_hour() -> int:
    """Minutes of an hour in which the database is awake, where one conversation an hour is had."""
    minutes = set(range(60 - _TALK_MINUTES, 60))
    for due in DUES_MINUTES:
        minutes |= {(due + n) % 60 for n in range(_RUN_MINUTES + _PAUSE_MINUTES)}
    return len(minutes)


HOURLY_TALKS: Sequence[CostItem] = (
    CostItem(
        "acu",
        HOURS * count_awake_minutes_of_hour() / 60,
        f"awake {count_awake_minutes_of_hour()} minutes of each hour at 1 unit",
    ),
)
"""One conversation an hour, day and night, a month: the database seldom pauses for long."""
MONTH_OF_A_MILLION: Sequence[CostItem] = (
    *NETWORKS["`endpoints`, one zone (default)"],
    *FIXED_COSTS,
    *AWAKE_COSTS,
    *METRICS,
    *EVENTS,
    *(CostItem("transition", 3 * item.units, item.why) for item in RUN_COSTS[1]),
)
"""A million events spread over a month, everything included: one each 2.6 seconds, so that the
database never pauses and jobs run day and night, at most as often as their spacings let them."""


def sum_costs(items: Sequence[CostItem]) -> float:
    """The cost of all items."""
    return sum(item.total_usd for item in items)
