"""Short-term memory: the newest events of a session, and their topics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from strandline.context.schemas import ShortTermTopicOut, TopicsOut
from strandline.db.database import TenantDb
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import PromptEvent, TaskContext
from strandline.log.trust_ranks import least_trusted
from strandline.sessions import store
from strandline.sessions.chains_view import SessionReadContext
from strandline.sessions.store import RecentEventExecution, Session, ShortTermEvent
from strandline.tuning import Tuning


@dataclass
class _ExecutionGroup:
    """Equal recent events, of which only the newest is shown."""

    event_id: UUID
    count: int = 0


def coalesce_by_execution(newest_first: Sequence[RecentEventExecution]) -> list[tuple[UUID, int]]:
    """Coalesce recent events: of events with the same type and the same workflow_id or
    execution_id, only the newest is kept. Returns pairs of (event id, number of events it
    represents, including itself), newest first."""
    groups: list[_ExecutionGroup] = []
    by_key: dict[tuple[str, str, str], _ExecutionGroup] = {}
    for event in newest_first:
        id_fields = (("workflow_id", event.workflow_id), ("execution_id", event.execution_id))
        keys = [(event.type, name, value) for name, value in id_fields if value is not None]
        group = next((by_key[key] for key in keys if key in by_key), None)
        if group is None:
            group = _ExecutionGroup(event.event_id)
            groups.append(group)
        group.count += 1
        for key in keys:  # a hidden event links the group by its other id, too
            by_key.setdefault(key, group)
    return [(group.event_id, group.count) for group in groups]


def read_short_term_events(
    view: SessionReadContext, limit: int | None = None
) -> list[tuple[ShortTermEvent, int]]:
    """The events of `list_short_term_event_counts`, each with the number of events it
    represents."""
    counts = list_short_term_event_counts(view, limit)
    rows = store.read_short_term_events(view.access, list(counts)) if counts else ()
    return [(row, counts[row.event_id]) for row in rows]


def list_short_term_event_counts(
    view: SessionReadContext, limit: int | None = None
) -> dict[UUID, int]:
    """The newest events of a session, or of all visible scopes, coalesced: the number of events
    that each represents, by id. At most `limit` and the tuned window, none older than the tuned
    age; newest first."""
    return list_short_term_event_counts_of_session(
        view.access,
        view.tuning,
        view.now,
        session=None if view.covers_all_scopes else view.session,
        limit=limit,
    )


def list_short_term_event_counts_of_session(
    access: TenantDb,
    tuning: Tuning,
    now: datetime,
    *,
    session: Session | None,
    limit: int | None = None,
) -> dict[UUID, int]:
    """Like `list_short_term_event_counts`, for this session; None: for all visible scopes. Empty if
    the view is the whole tenant."""
    since = now - timedelta(seconds=tuning.window_seconds)
    recent_events = (
        store.list_recent_session_events(access, session.session_id, session.scope_id, since)
        if session
        else store.list_recent_visible_events(access, since)
    )
    return dict(
        coalesce_by_execution(recent_events)[
            : min(limit or tuning.window_events, tuning.window_events)
        ]
    )


_AHEAD_EVENTS = 3
"""How many later events help to tell whether a message continues a topic."""


def list_short_term_topics(
    view: SessionReadContext, llm: LlmTasks, *, subject: str, deadline: float
) -> TopicsOut:
    """The topics of a session's short-term memory: those of its chains, and those of the events
    that are in no chain yet, if they have text. The heuristic model tells the latter apart, session
    by session; the language model names each, which counts towards `subject`'s rate limit.
    `deadline` is in time.monotonic() seconds."""
    task = TaskContext(
        tenant=view.access.caller.tenant,
        subject=subject,
        participants=tuple(view.session.participants),
        scope_id=str(view.session.scope_id),
        deadline=deadline,
    )
    newest_first = [row for row, _ in read_short_term_events(view)]
    open_topics = _group_events_into_topics(
        [row for row in reversed(newest_first) if row.chain_id is None],
        partial(llm.continues_by_heuristic, task),
    )
    rows_by_topic: dict[UUID, list[ShortTermEvent]] = {}
    for row in newest_first:
        topic_id = row.chain_id or open_topics[row.event_id]
        rows_by_topic.setdefault(topic_id, []).insert(0, row)
    topic_list: list[ShortTermTopicOut] = []
    for rows in rows_by_topic.values():
        chain_id = rows[0].chain_id
        topic, made_by, trust = rows[0].topic, rows[0].topic_by, rows[0].trust
        if chain_id is None:
            if not any(row.content for row in rows):
                continue
            topic, made_by = _name_topic(llm, task, rows)
        topic_list.append(
            ShortTermTopicOut.model_validate(
                {"topic": topic, "summary": rows[0].summary, "made_by": made_by}
                | {"chain_id": chain_id, "event_ids": [row.event_id for row in rows]}
                | {"trust": trust or least_trusted(row.origin for row in rows)}
            )
        )
    return TopicsOut(session_id=view.session.session_id, topics=topic_list)


def _group_events_into_topics(
    oldest_first: Sequence[ShortTermEvent],
    continues: Callable[[Sequence[PromptEvent], PromptEvent, Sequence[PromptEvent]], bool],
) -> Mapping[UUID, UUID]:
    """For each event the first event of its topic, by the heuristic model: session by session, a
    user's message begins a topic where it does not continue the one before."""
    events = [(row, _to_prompt_event(row)) for row in oldest_first]
    first_ids: dict[UUID, UUID] = {}
    topics: dict[str, tuple[UUID, list[PromptEvent]]] = {}
    for place, (row, event) in enumerate(events):
        first_id, before = topics.get(row.session_id, (row.event_id, []))
        if before and row.role == "user" and row.type == "message":
            after = [e for r, e in events[place + 1 :] if r.session_id == row.session_id]
            if not continues(before, event, after[:_AHEAD_EVENTS]):
                first_id, before = row.event_id, []
        topics[row.session_id] = first_id, [*before, event]
        first_ids[row.event_id] = first_id
    return first_ids


def _to_prompt_event(row: ShortTermEvent) -> PromptEvent:
    said_at = row.occurred_at or row.recorded_at
    return PromptEvent(row.seq, row.speaker, row.role, row.type, row.content or "", said_at)


def _name_topic(
    llm: LlmTasks, task: TaskContext, rows: Sequence[ShortTermEvent]
) -> tuple[str | None, dict[str, Any]]:
    """Name the topic of events that are in no chain yet, of which at least one has text. Returns
    the topic, if there is one, and the model that was called."""
    result = llm.topic(task, [_to_prompt_event(row) for row in rows if row.content])
    made_by = {"model": result.model, "prompt": result.prompt, "fell_back": result.fallback_reason}
    return result.value.topic, made_by
