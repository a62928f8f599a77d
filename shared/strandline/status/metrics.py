"""A tenant's counters as Prometheus reads them (exposition format 0.0.4)."""

from strandline.db.database import Access
from strandline.llm import store as llm_store
from strandline.log import store_counts

_SHOWN = (
    ("strandline_events_total", "counter", "Events ever appended.", "events"),
    ("strandline_scopes", "gauge", "Scopes.", "scopes"),
    ("strandline_stored_bytes", "gauge", "Content, metadata and payloads.", "stored_bytes"),
    ("strandline_events_not_embedded", "gauge", "Events without a vector.", "events_not_embedded"),
    ("strandline_events_not_folded", "gauge", "Events not gone through yet.", "events_not_folded"),
    ("strandline_chains_active", "gauge", "Chains in mid-term memory.", "chains_active"),
    ("strandline_chains_rejected", "gauge", "Chains kept out of it.", "chains_rejected"),
    ("strandline_chains_archived", "gauge", "Chains that grew cold.", "chains_archived"),
    ("strandline_recalls_not_folded", "gauge", "Recalls of chains to fold.", "recalls_not_folded"),
    (
        "strandline_oldest_recall_age_seconds",
        "gauge",
        "For how long the oldest of these has waited.",
        "oldest_recall_seconds",
    ),
    ("strandline_scopes_due", "gauge", "Scopes whose background work is due.", "scopes_due"),
    (
        "strandline_scopes_stuck",
        "gauge",
        "Scopes whose background work was put off five times in a row.",
        "scopes_stuck",
    ),
    (
        "strandline_oldest_due_age_seconds",
        "gauge",
        "For how long the oldest of that work has been due.",
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
        "Age of the oldest event not gone through yet.",
        "unfolded_seconds",
    ),
    ("strandline_jobs_failed", "gauge", "Jobs failed and not tried again.", "jobs_failed"),
    ("strandline_breakers_open", "gauge", "Language models left alone.", "breakers_open"),
    ("strandline_model_calls_month", "gauge", "Requests to models this month.", "model_calls"),
    ("strandline_model_usd_month", "gauge", "What they cost, in USD.", "model_usd"),
)
"""Name, type and help of each, and the figure that it shows."""


def trouble(access: Access) -> store_counts.Trouble:
    """What of the asker's tenant's background work fails, in numbers."""
    return store_counts.trouble(access)


def exposition(access: Access, space: str) -> str:
    """The counters of the asker's tenant. No labels: the credential says whose they are."""
    due, spent = store_counts.due(access, space), llm_store.spend(access)
    found: dict[str, float] = {
        **vars(store_counts.counters(access, space)),
        "scopes_due": due.scopes,
        "scopes_stuck": due.stuck,
        "oldest_due_seconds": due.seconds,
        "unembedded_seconds": due.unembedded_seconds,
        "unfolded_seconds": due.unfolded_seconds,
        "model_calls": spent.calls,
        "model_usd": spent.cost_usd,
    }
    return "".join(
        f"# HELP {name} {told}\n# TYPE {name} {kind}\n{name} {found[field]}\n"
        for name, kind, told, field in _SHOWN
    )
