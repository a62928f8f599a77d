"""A tenant's counters as Prometheus reads them (exposition format 0.0.4)."""

from strandline.db import Access
from strandline.store import metrics

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
        "strandline_oldest_due_age_seconds",
        "gauge",
        "For how long the oldest of that work has been due.",
        "oldest_due_seconds",
    ),
)
"""Name, type and help of each, and the field of `Counters` that it shows."""


def exposition(access: Access, space: str) -> str:
    """The counters of the asker's tenant. No labels: the credential says whose they are."""
    found = vars(metrics.counters(access, space))
    return "".join(
        f"# HELP {name} {told}\n# TYPE {name} {kind}\n{name} {found[field]}\n"
        for name, kind, told, field in _SHOWN
    )
