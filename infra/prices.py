"""The cost of a deployment, computed from prices as data: `make prices` writes the tables of
docs/cost.md. The unit prices are in infra/price_list.py.
"""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.price_list import AGENTCORE, AS_OF, BEDROCK_EMBEDDINGS, PRICES
from strandline.function_specs import FUNCTIONS
from strandline.jobs.runner import Shard, pack_shards_into_items

HOURS = 730.0
"""Hours of a month, as AWS counts them."""
BEGIN, END = "<!-- prices: written by `make prices` -->", "<!-- end of prices -->"
DOCUMENT = Path(__file__).parents[1] / "docs" / "cost.md"


ENDPOINTS = 2
"""Interface endpoints of `network=endpoints`: SQS and Secrets Manager."""
SECRETS = 3
"""Secrets of the settings, the first key and the master user."""
ALARM_METRICS = 27
"""Metrics that alarms use without a language model. A test counts them in the template."""
S3_METRICS = 16
"""Request metrics of a bucket (S3 User Guide, "Amazon S3 request metrics in CloudWatch"), billed as
custom metrics in the hours that have requests."""
CORES_PER_UNIT = 0.25
"""Cores of a capacity unit: an assumption, AWS gives no figure."""
CPU_OF_EVENT, CPU_OF_RECALL = 0.002, 0.006
"""The database's CPU for an append and for a recall, in seconds."""
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
        (21 + S3_METRICS) * 31 / HOURS,
        f"{21 + S3_METRICS} metrics in the hour of each sweep, {S3_METRICS} of them S3's",
    ),
    CostItem("message", POLLS, "Lambda's waiting for messages of two queues"),
)

IDLE: Sequence[CostItem] = (*PAUSED_COSTS, *FIXED_COSTS)
PROD_UNITS = 2 * 2
"""Minimum of the stage `prod` in cdk.json: a writer and a reader. A test compares it."""
PROD: Sequence[CostItem] = (CostItem("acu", PROD_UNITS * HOURS, "two units, twice, all month"),)
KEY: Sequence[CostItem] = (CostItem("key", 1, "one KMS key"),)

MILLION = 1e6


def _convert_cpu_seconds_to_acu_hours(seconds: float) -> float:
    """Hours of a capacity unit for so many seconds of CPU."""
    return seconds / CORES_PER_UNIT / _USED_SHARE / 3600


EVENTS: Sequence[CostItem] = (
    CostItem("request", MILLION, "a call of its own"),
    CostItem("invocation", MILLION, ""),
    CostItem("gb_second", MILLION * 0.010 * _MEMORY["ingest"], "10 ms of ingest"),
    CostItem("message", 3 * MILLION / 10, "a tenth of a queue message (sent, received, deleted)"),
    CostItem("invocation", MILLION / 10, ""),
    CostItem("gb_second", MILLION * 0.030 * _MEMORY["worker"], "30 ms of the worker"),
    CostItem(
        "acu",
        MILLION * _convert_cpu_seconds_to_acu_hours(CPU_OF_EVENT),
        "2 ms of the database's CPU",
    ),
    CostItem("io", 10 * MILLION, "10 I/Os"),
    CostItem("storage", 5, "5 KB kept for a month"),
    CostItem("log", 1.5, "1.5 KB of log"),
)
RECALLS: Sequence[CostItem] = (
    CostItem("request", MILLION, "a call of its own"),
    CostItem("invocation", MILLION, ""),
    CostItem("gb_second", MILLION * 0.050 * _MEMORY["query"], "50 ms of query"),
    CostItem(
        "acu",
        MILLION * _convert_cpu_seconds_to_acu_hours(CPU_OF_RECALL),
        "6 ms of the database's CPU",
    ),
    CostItem("io", 2 * MILLION, "2 I/Os"),
    CostItem("log", 1.5, "1.5 KB of log"),
    CostItem("out", 8, "8 KB of answer"),
)
TOOL_CALLS: Sequence[CostItem] = (
    CostItem("request", MILLION, "a call of its own"),
    CostItem("invocation", MILLION, ""),
    CostItem("gb_second", MILLION * 0.055 * _MEMORY["mcp"], "55 ms of mcp"),
    CostItem(
        "acu",
        MILLION * _convert_cpu_seconds_to_acu_hours(CPU_OF_RECALL),
        "6 ms of the database's CPU",
    ),
    CostItem("io", 2 * MILLION, "2 I/Os"),
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
SWEPT_TENANTS = 1000
RUNS = 8 * 12 * 31
"""Sweeps in a month of eight busy hours a day, every five minutes."""


def count_run_transitions(tenants: int) -> int:
    """State transitions of a run with work in so many tenants: start, plan, choice, map, finish and
    end, and of each item its state and its end."""
    return 6 + 2 * len(pack_shards_into_items([Shard("", number) for number in range(tenants)]))


SWEEPS: Sequence[CostItem] = (
    CostItem("transition", RUNS * count_run_transitions(SWEPT_TENANTS), "eight hours a day"),
)
RECORDS: Sequence[CostItem] = (CostItem("storage", 0.5, "5 KB each"),)
AWAKE_COSTS: Sequence[CostItem] = (CostItem("acu", HOURS, "one unit, all month"),)
METRICS: Sequence[CostItem] = (
    CostItem("metric", 62 + S3_METRICS, f"{62 + S3_METRICS} metrics, {S3_METRICS} of them S3's"),
)


def sum_costs(items: Sequence[CostItem]) -> float:
    """The cost of all items."""
    return sum(item.total_usd for item in items)


def render_cost_tables() -> str:
    """The generated part of docs/cost.md."""
    lines = (
        BEGIN,
        _wrap_paragraph(
            f"List prices of us-east-1 as of {AS_OF}, in USD, without free tiers and discounts. "
            "`infra/price_list.py` holds each price with the page that showed it. No page was at "
            f"hand for {_count_unverified()} of the {len(PRICES)}; look them up before you rely on "
            "them."
        ),
        "",
        "| a month without calls, by `network` | network | in all |",
        "|---|---|---|",
        *_make_idle_rows(),
        "",
        _wrap_paragraph(
            f"Every row includes {_join_costs(FIXED_COSTS)}. Where the database pauses, it "
            f"includes {_join_costs(PAUSED_COSTS)}. `prod` includes {_join_costs(PROD)}. With "
            f"`key` add {_join_costs(KEY)}, with a model of Bedrock "
            f"{_join_costs(BEDROCK_ENDPOINT)}. A budget counts costs by the stack's tag, once that "
            "tag is activated as a cost allocation tag of the account."
        ),
        "",
        "| in addition | Strandline | AgentCore Memory |",
        "|---|---|---|",
        *_make_usage_rows(),
        "",
        _wrap_paragraph(_describe_assumptions()),
        END,
    )
    return "\n".join(lines)


def _make_idle_rows() -> list[str]:
    """The cost of a month without calls."""
    rows = [
        f"| {n} | {_format_usd(sum_costs(i))} | {_format_usd(sum_costs([*i, *IDLE]))} |"
        for n, i in NETWORKS.items()
    ]
    two_zones = NETWORKS["`endpoints`, two zones"]
    prod = (
        f"| the stage `prod` as it ships, which never pauses | {_format_usd(sum_costs(two_zones))} "
    )
    return [*rows, f"{prod}| {_format_usd(sum_costs([*two_zones, *PROD, *FIXED_COSTS]))} |"]


def _make_usage_rows() -> list[str]:
    """The additional cost of use, beside that of AgentCore Memory."""
    peers = {
        "a million events": (EVENTS, AGENTCORE["event"].usd * MILLION),
        "a million recalls": (RECALLS, AGENTCORE["retrieval"].usd * MILLION),
        "a million recalls by a tool, over MCP": (TOOL_CALLS, AGENTCORE["retrieval"].usd * MILLION),
        "100,000 long-term memories, a month": (RECORDS, AGENTCORE["record"].usd * 1e5),
    }
    rows = [
        f"| {n} | {_format_usd(sum_costs(i))} | {_format_usd(peer)} |"
        for n, (i, peer) in peers.items()
    ]
    sweeps = (
        f"| Step Functions, work in {SWEPT_TENANTS:,} tenants every 5 minutes, 8 hours a day, a "
        f"month | {_format_usd(sum_costs(SWEEPS))} | |"
    )
    models = [
        f"| a million events, vectors by Bedrock's `{model}` | {_format_usd(sum_costs(items))} | |"
        for model, items in EMBEDDED_BY_BEDROCK.items()
    ]
    formed = (
        "| a million events, topics by Bedrock's `amazon.nova-lite-v1:0` | "
        f"{_format_usd(sum_costs(FORMED_BY_BEDROCK))} | |"
    )
    return [*rows, *models, formed, sweeps]


def _describe_assumptions() -> str:
    return (
        f"Assumptions for an event: {_join_reasons(EVENTS)}. For a recall: "
        f"{_join_reasons(RECALLS)}. By a tool: {_join_reasons(TOOL_CALLS)}. A capacity unit "
        "counts as a quarter of a core, used to three tenths. The times are estimates above what "
        "one machine showed (an append 1.1 ms, a recall 15.4 ms, see proofs.md; embedding 15 to 20 "
        "ms of CPU a text), because no account was available to measure in. A batch is one call "
        "with up to 500 events. By a model of Bedrock, of which none is used by default, "
        f"an event is {_join_reasons(next(iter(EMBEDDED_BY_BEDROCK.values())))} (a question "
        f"{TOKENS_OF_QUESTION}; both are estimates), and for topics "
        f"{_join_reasons(FORMED_BY_BEDROCK)} (110 calls for 1,000 events, chains.md). The price of "
        "AgentCore Memory includes its models. Not included: payloads in S3, and a database that "
        f"never pauses because calls never cease: {_format_usd(sum_costs(AWAKE_COSTS))} a month at "
        "one unit (half a unit, 1 GiB, is too little: logins by IAM alone take 300 to 1,000 MiB). "
        f"The metrics of a stage in use all month cost about {_format_usd(sum_costs(METRICS))} "
        f"({METRICS[0].why}). The prices of AgentCore Memory are as third parties quote them "
        "(0.25 for 1,000 events, 0.75 for 1,000 built-in records and month, 0.50 for 1,000 "
        "retrievals), not verified."
    )


def _count_unverified() -> int:
    return sum(price.source == "remembered" for price in PRICES.values())


def _wrap_paragraph(words: str) -> str:
    return textwrap.fill(words, 104, break_long_words=False, break_on_hyphens=False)


def replace_tables_in_document(document: str) -> str:
    """The document with today's tables. Raises ValueError if its markers are missing."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(
            f"{DOCUMENT.name} has no {BEGIN} … {END}: put both where the tables belong"
        )
    return before + render_cost_tables() + after


def _format_usd(amount: float) -> str:
    return f"{amount:,.2f}"


def _join_costs(items: Sequence[CostItem]) -> str:
    return ", ".join(f"{item.why} ({_format_usd(item.total_usd)})" for item in items)


def _join_reasons(items: Sequence[CostItem]) -> str:
    return ", ".join(item.why for item in items if item.why)


if __name__ == "__main__":
    DOCUMENT.write_text(replace_tables_in_document(DOCUMENT.read_text()))
    sys.stdout.write(f"{DOCUMENT.name} has the prices of {AS_OF}\n")
