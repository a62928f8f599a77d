"""Conversations that fold into chains, for tests of the topic index's readers."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.strandline.chains.fold_fixtures import append
from tests.support import Gateway, ScratchDatabase

START = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)
TOPICS: Sequence[Sequence[str]] = (
    (
        "The harbour buoy must be painted red before the regatta.",
        "Which paint did we use for the buoy last year?",
        "A red marine enamel from Larsen, two coats for the buoy.",
        "Good, order three cans of the red enamel for the buoy.",
    ),
    (
        "My sourdough starter smells of vinegar, is the flour too old?",
        "Feed the sourdough with fresh rye flour twice a day.",
        "The bread crust was better with the rye flour today.",
        "Bake the sourdough at 240 degrees with steam.",
    ),
    (
        "The telescope mirror needs a new coating before October.",
        "Aluminium coating of the telescope mirror costs 180 euros.",
        "Then send the telescope mirror to the workshop in Graz.",
        "The workshop in Graz has the mirror until Thursday.",
    ),
    (
        "The tax office wants the invoices of the second quarter.",
        "I have put the invoices of April and May into the ledger.",
        "The June invoice for the tax office is still missing.",
        "The auditor comes on Monday to look at the ledger.",
    ),
)


def converse(
    gateway: Gateway,
    key: str,
    participants: Sequence[str] = ("user:alice", "agent:helper"),
    *,
    first: int = 0,
    count: int = 4,
    note: str = "",
) -> list[str]:
    """Talk about so many topics, a day each; gives the events' ids. `note` is in every text."""
    events: list[dict[str, Any]] = []
    users = [name for name in participants if name.startswith("user:")]
    for n in range(first, first + count):
        begin = START + timedelta(days=n)
        for place, text in enumerate(TOPICS[n % len(TOPICS)]):
            speaker = users[place % len(users)]
            events.append(
                {
                    "participants": list(participants),
                    "role": "user",
                    "speaker": speaker,
                    "content": f"{text} {note}".strip(),
                    "session_id": "talk",
                    "occurred_at": (begin + timedelta(minutes=place)).isoformat(),
                    "source_event_key": f"{'-'.join(participants)}-{n}-{place}{note}",
                }
            )
    append(gateway, key, events)
    rows = gateway.call("GET", "/memories/list", key=key, query={"limit": 500}).body["events"]
    by_text = {(event["content"], event["occurred_at"]): event["event_id"] for event in rows}
    return [by_text[str(event["content"]), _utc(str(event["occurred_at"]))] for event in events]


def _utc(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone(UTC).isoformat().replace("+00:00", "Z")


def fold(gateway: Gateway, base: ScratchDatabase) -> None:
    """Let every chain that can be formed be formed, also the thin ones."""
    base.rows('update tenants set tuning = \'{"quality": "permissive"}\'::jsonb')
    for _ in range(3):
        gateway.sweep()
