"""A tenant's counters in Prometheus' text format (exposition format 0.0.4)."""

from strandline.db.database import TenantDb
from strandline.llm import store_calls
from strandline.log import store_tenant_counts
from strandline.status import store

_METRICS = (
    ("strandline_events_total", "counter", "Events ever appended.", "events"),
    ("strandline_scopes", "gauge", "Scopes.", "scopes"),
    ("strandline_stored_bytes", "gauge", "Content, metadata and payloads.", "stored_bytes"),
    ("strandline_events_not_embedded", "gauge", "Events without a vector.", "events_not_embedded"),
    ("strandline_events_not_folded", "gauge", "Events not folded yet.", "events_not_folded"),
    ("strandline_chains_active", "gauge", "Chains in mid-term memory.", "chains_active"),
    ("strandline_chains_rejected", "gauge", "Chains that were rejected.", "chains_rejected"),
    ("strandline_chains_archived", "gauge", "Chains that were archived.", "chains_archived"),
    ("strandline_recalls_not_folded", "gauge", "Recalls of chains to fold.", "recalls_not_folded"),
    (
        "strandline_oldest_recall_age_seconds",
        "gauge",
        "Age of the oldest recall to fold.",
        "oldest_recall_seconds",
    ),
    ("strandline_scopes_due", "gauge", "Scopes whose background work is due.", "scopes_due"),
    (
        "strandline_scopes_stuck",
        "gauge",
        "Scopes whose background work was postponed five times in a row.",
        "scopes_stuck",
    ),
    (
        "strandline_oldest_due_age_seconds",
        "gauge",
        "How long the oldest background work has been due.",
        "oldest_due_seconds",
    ),
    (
        "strandline_oldest_not_embedded_age_seconds",
        "gauge",
        "Age of the oldest event without a vector.",
        "unembedded_seconds",
    ),
    (
        "strandline_oldest_not_folded_age_seconds",
        "gauge",
        "Age of the oldest event not folded yet.",
        "unfolded_seconds",
    ),
    ("strandline_snapshot_version", "gauge", "Active topic index version.", "snapshot_version"),
    (
        "strandline_snapshot_age_seconds",
        "gauge",
        "Age of the active topic index version.",
        "snapshot_seconds",
    ),
    (
        "strandline_chains_not_indexed",
        "gauge",
        "Chain versions that the topic index lacks.",
        "chains_not_indexed",
    ),
    (
        "strandline_oldest_not_indexed_age_seconds",
        "gauge",
        "How long the oldest chain version has waited for the topic index.",
        "unindexed_seconds",
    ),
    ("strandline_erasures_waiting", "gauge", "Erasures not complete yet.", "erasures_waiting"),
    (
        "strandline_oldest_erasure_age_seconds",
        "gauge",
        "Age of the oldest erasure not complete yet.",
        "oldest_erasure_seconds",
    ),
    (
        "strandline_rows_unreadable",
        "gauge",
        "Rows with a time that cannot be shown as it is.",
        "rows_unreadable",
    ),
    ("strandline_jobs_failed", "gauge", "Jobs failed and not tried again.", "jobs_failed"),
    ("strandline_breakers_open", "gauge", "Models with an open circuit breaker.", "breakers_open"),
    ("strandline_model_calls_month", "gauge", "Requests to models this month.", "model_calls"),
    ("strandline_model_usd_month", "gauge", "Cost of models this month, in USD.", "model_usd"),
)
"""The metrics: name, type, help text, and the field with the value."""


def count_failures(access: TenantDb) -> store_tenant_counts.BackgroundFailures:
    """Count the failures of the tenant's background work."""
    return store_tenant_counts.count_background_failures(access)


def render_tenant_metrics(access: TenantDb, space: str) -> str:
    """Render the tenant's counters in Prometheus' text format. There are no labels: the credential
    determines the tenant."""
    due_work, model_spend = (
        store_tenant_counts.read_due_work(access, space),
        store_calls.read_monthly_spend(access),
    )
    values: dict[str, float] = {
        **vars(store_tenant_counts.read_counters(access, space)),
        **vars(store.read_topic_index(access)),
        "scopes_due": due_work.scopes,
        "scopes_stuck": due_work.stuck_scopes,
        "oldest_due_seconds": due_work.seconds,
        "unembedded_seconds": due_work.unembedded_seconds,
        "unfolded_seconds": due_work.unfolded_seconds,
        "erasures_waiting": due_work.erasures,
        "oldest_erasure_seconds": due_work.erasure_seconds,
        "rows_unreadable": count_failures(access).rows_unreadable,
        "model_calls": model_spend.calls,
        "model_usd": model_spend.cost_usd,
    }
    return "".join(
        f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n{name} {values[field]}\n"
        for name, kind, help_text, field in _METRICS
    )
