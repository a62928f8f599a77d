"""The tables of docs/cost.md: `make prices` writes them, from infra/prices.py."""

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from infra.price_list import AGENTCORE, AS_OF, PRICES
from infra.prices import (
    AWAKE_COSTS,
    BEDROCK_ENDPOINT,
    COLD_RECALLS,
    EMBEDDED_BY_BEDROCK,
    EVENTS,
    FIREWALL,
    FIXED_COSTS,
    FORMED_BY_BEDROCK,
    HOURLY_TALKS,
    IDLE,
    KEY,
    LARGE_RECALLS,
    LARGE_VIEW,
    METRICS,
    MILLION,
    MONTH_OF_A_MILLION,
    NETWORKS,
    PAUSED_COSTS,
    PROD,
    RECALLS,
    RECORDS,
    RUN_COSTS,
    STRANGER_RATE,
    STRANGERS,
    TOKENS_OF_QUESTION,
    TOOL_CALLS,
    USUAL_VIEW,
    CostItem,
    sum_costs,
)

BEGIN, END = "<!-- prices: written by `make prices` -->", "<!-- end of prices -->"
DOCUMENT = Path(__file__).parents[1] / "docs" / "cost.md"


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
            f"includes {_join_costs(PAUSED_COSTS)}. `prod` includes {_join_costs(PROD)} "
            f"and its firewall, {_join_costs(FIREWALL)}. With `key` add {_join_costs(KEY)}, with a "
            f"model of Bedrock {_join_costs(BEDROCK_ENDPOINT)}. A budget counts costs by the "
            "stack's tag, once that tag is activated as a cost allocation tag of the account."
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
    items = [*two_zones, *PROD, *FIREWALL, *FIXED_COSTS]
    return [*rows, f"{prod}| {_format_usd(sum_costs(items))} |"]


def _make_usage_rows() -> list[str]:
    """The additional cost of use, beside that of AgentCore Memory."""
    retrievals = AGENTCORE["retrieval"].usd * MILLION
    peers = {
        "a million events, on top of a stage that is awake": (
            EVENTS,
            AGENTCORE["event"].usd * MILLION,
        ),
        "a million events over a month, everything included": (
            MONTH_OF_A_MILLION,
            AGENTCORE["event"].usd * MILLION,
        ),
        f"a million recalls, of callers who see {USUAL_VIEW:,} events": (RECALLS, retrievals),
        f"a million recalls, of callers who see {LARGE_VIEW:,} events": (LARGE_RECALLS, retrievals),
        "the same, nothing of the tenant in the database's cache": (COLD_RECALLS, retrievals),
        "a million recalls by a tool, over MCP": (TOOL_CALLS, retrievals),
        "100,000 long-term memories, a month": (RECORDS, AGENTCORE["record"].usd * 1e5),
    }
    rows = [
        f"| {n} | {_format_usd(sum_costs(i))} | {_format_usd(peer)} |"
        for n, (i, peer) in peers.items()
    ]
    runs = [
        "| Step Functions at most: every job at its least spacing, 8 hours a day, a month, with "
        f"work in {tenants:,} tenant{'s' if tenants > 1 else ''} each time "
        f"| {_format_usd(sum_costs(items))} | |"
        for tenants, items in RUN_COSTS.items()
    ]
    models = [
        f"| a million events, vectors by Bedrock's `{model}` | {_format_usd(sum_costs(items))} | |"
        for model, items in EMBEDDED_BY_BEDROCK.items()
    ]
    topics = (
        "| a million events, topics by Bedrock's `amazon.nova-lite-v1:0` | "
        f"{_format_usd(sum_costs(FORMED_BY_BEDROCK))} | |"
    )
    talks = (
        "| one conversation an hour, day and night, a month "
        f"| {_format_usd(sum_costs(HOURLY_TALKS))} | |"
    )
    strangers = [
        f"| a stranger's address that sends {STRANGER_RATE:g} requests a second, a day{how} "
        f"| {_format_usd(sum_costs(items))} | |"
        for how, items in STRANGERS.items()
    ]
    return [*rows, *models, topics, talks, *runs, *strangers]


def _describe_assumptions() -> str:
    return (
        f"Assumptions for an event: {_join_reasons(EVENTS)}. For a recall: "
        f"{_join_reasons(RECALLS)}. By a tool: {_join_reasons(TOOL_CALLS)}. Cold: "
        f"{_join_reasons(COLD_RECALLS[-1:])}. A capacity unit counts as a quarter of a core, used "
        "to three tenths. The database's CPU and the I/Os of a cold recall are measured on one "
        "machine (infra/database_figures.json, by `make bench NAME=database-cpu`), "
        "the functions' times are estimates above what it showed, because no account was at hand. "
        "A batch is one call with up to 500 events. One conversation an hour keeps the database "
        f"{HOURLY_TALKS[0].why}: its jobs follow 10, 30, 45 and 60 minutes after it, and the "
        "database pauses after five minutes without a connection. A million events over a month "
        "are one each 2.6 seconds, so that it never pauses: included are a stage at rest, the "
        f"unit that is awake ({_format_usd(sum_costs(AWAKE_COSTS))}; half a unit, 1 GiB, is too "
        "little: logins by IAM alone take 300 to 1,000 MiB), the metrics of a stage in use "
        f"({_format_usd(sum_costs(METRICS))}, {METRICS[0].why}; a further route and status in use "
        f"all month costs {_format_usd(2 * PRICES['metric'].usd)}) and every job at its least "
        "spacing day and night. With `storage_type` aurora-iopt1 no page has a price, a capacity "
        f"unit costs {PRICES['acu_iopt'].usd:g} an hour and a GB {PRICES['storage_iopt'].usd:g} a "
        "month. By a model of Bedrock, of which none is used by default, an event is "
        f"{_join_reasons(next(iter(EMBEDDED_BY_BEDROCK.values())))} (a question "
        f"{TOKENS_OF_QUESTION}; both are estimates), and for topics "
        f"{_join_reasons(FORMED_BY_BEDROCK)} (110 calls for 1,000 events, chains.md). The price of "
        "AgentCore Memory includes its models. Not included: payloads in S3, data through "
        f"endpoints ({PRICES['endpoint_gb'].usd:g} a GB) and NAT ({PRICES['nat_gb'].usd:g}), "
        f"backups beyond the size of the database ({PRICES['backup'].usd:g} a GB and month), and "
        "logs of runs. The prices of AgentCore Memory are as third parties quote them (0.25 for "
        "1,000 events, 0.75 for 1,000 built-in records and month, 0.50 for 1,000 retrievals), not "
        "verified."
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
