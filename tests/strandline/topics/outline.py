"""What tests of the topic index share: conversations, and trees as they lie in the database."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support import EVENTS, Gateway, ScratchDatabase

START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)
CORPUS = EVENTS.parent / "tests" / "bench" / "corpus"


def say_corpus(gateway: Gateway, key: str, name: str, *, limit: int = 10_000) -> int:
    """Append a conversation of the corpus; returns how many events."""
    messages: list[dict[str, Any]] = []
    head: dict[str, Any] = {}
    for line in (CORPUS / f"{name}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "session" in entry:
            head = entry
        elif "text" in entry and "speaker" in entry and len(messages) < limit:
            speaker = entry["speaker"]
            messages.append(
                {
                    "participants": head["participants"],
                    "role": "user" if speaker.startswith("user:") else "agent",
                    "speaker": speaker,
                    "content": entry["text"],
                    "session_id": head["session"],
                    "occurred_at": f"{head['date']}T{entry['at']}Z",
                }
            )
    for first in range(0, len(messages), 100):
        reply = gateway.call(
            "POST", "/api/v1/events/batch", {"events": messages[first : first + 100]}, key=key
        )
        assert reply.status in (200, 201, 207), reply.text
    return len(messages)


def fold_all(gateway: Gateway, base: ScratchDatabase) -> None:
    """Fold everything, and close all lanes; what was put off comes at once."""
    for _ in range(8):
        base.rows("update scope_work set due_at = least(due_at, now())")
        gateway.sweep()
        base.rows("update lanes set idle_at = now() - interval '1 second'")
        if not base.rows(
            "select 1 from lanes union all select 1 from scopes where folded_seq < last_seq"
        ):
            return
    raise AssertionError("not folded")


def build(gateway: Gateway, tenant: str = "acme") -> dict[str, Any]:
    """A run of the builder in one tenant."""
    return gateway.run_job("builder", tenant)


def read_tree(base: ScratchDatabase, version: int | None = None) -> list[tuple[Any, ...]]:
    """The slots of a version of all trees, by scope and slot."""
    return base.rows(
        """
        select t.tenant_id, t.scope_id, t.slot, t.parent_slot, t.node_id, t.is_leaf,
            t.chain_version, n.content_hash
        from topic_tree t join topic_nodes n using (tenant_id, node_id)
        join active_snapshot a using (tenant_id)
        where t.from_version <= coalesce(%s, a.version)
            and (t.to_version is null or t.to_version > coalesce(%s, a.version))
        order by 1, 2, 3
        """,
        version,
        version,
    )


def outline(base: ScratchDatabase) -> str:
    """The active trees as text."""
    rows = base.rows(
        """
        select t.slot, t.parent_slot, t.is_leaf, coalesce(n.topic, '-'), coalesce(n.summary, '-'),
            n.event_count, n.leaf_count
        from topic_tree t join topic_nodes n using (tenant_id, node_id)
        where t.to_version is null order by n.started_at, t.slot
        """
    )
    lines: list[str] = []

    def show(parent: object, depth: int) -> None:
        for slot, above, is_leaf, topic, summary, events, _leaves in rows:
            if above == parent:
                mark = "-" if is_leaf else "+"
                lines.append(f"{'  ' * depth}{mark} {topic} [{events}] {summary}")
                show(slot, depth + 1)

    show(None, 0)
    return "\n".join(lines)


def depths(rows: Sequence[tuple[Any, ...]]) -> dict[Any, int]:
    """How many slots are above each leaf, by slot, of rows of `read_tree`."""
    parents = {row[2]: row[3] for row in rows}

    def depth(slot: Any) -> int:
        above = parents[slot]
        return 0 if above is None else 1 + depth(above)

    return {row[2]: depth(row[2]) for row in rows if row[5]}


def in_hours(count: int) -> datetime:
    """A moment of the conversations that are made up."""
    return START + timedelta(hours=count)


def drop_index(base: ScratchDatabase) -> None:
    """Delete every row of the topic index, and have all chain versions wait."""
    for statement in (
        "delete from topic_builds",
        "delete from topic_tree",
        "delete from snapshot_scopes",
        "with gone as (delete from active_snapshot) delete from snapshots",
        "delete from topic_nodes",
        "delete from topic_events",
        "delete from topic_work",
        "insert into topic_work select tenant_id, scope_id, participants, count(*), now(), now(),"
        " max(position) from chain_versions group by tenant_id, scope_id, participants",
    ):
        base.rows(statement)
