"""Erase events: one transaction makes them and everything derived from them unreadable.

Up to EVENTS_AT_ONCE events become tombstones in that transaction. For more events it writes a mark.
Row-level security hides the marked events, and the job (`eraser`) turns them into tombstones in
batches. The job also does what takes time: it removes payloads and rebuilds chains.
"""

import json
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import batched
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.auth.principals import Principal
from strandline.db.database import TenantDb
from strandline.erasure import store, store_derived, store_selections, store_sessions
from strandline.erasure.store import Erasure, RequestKey
from strandline.erasure.store_selections import ErasureMark, EventSelection
from strandline.errors import Conflict, Forbidden, Gone, NotFound
from strandline.graph.nodes.store_observations import lock_scope_graphs as lock_graph
from strandline.graph.nodes.store_observations import recompute_nodes_and_edges
from strandline.log import store_erasure_marks
from strandline.personas import store_memories
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext

EVENTS_AT_ONCE = 1_000
"""The most events that one transaction erases. It takes less than a second on a quiet machine.
Other writers of the same scopes wait until it ends."""
_LISTED = 10
"""How many transactions' events are listed at a time."""

_OF_OTHERS = ("turns", "sona_members", "acts", "event_uses", "recalls")
"""Counts that would reveal what other callers asked, and in which sonas. An erasure by a bound user
clears these rows too, although that user does not see them, but does not report their counts."""


def restrict_selection_to_caller(principal: Principal, selection: EventSelection) -> EventSelection:
    """Narrow a selection to what this caller may erase: a bound credential erases only what its own
    user said. Events that are named by id are checked by `require_may_erase_events` instead. Raises
    Forbidden."""
    if principal.user is None or selection.event_ids is not None:
        return selection
    if selection.kind in ("scope", "tenant"):
        raise Forbidden(
            "A credential bound to a user can erase only what that user said; to erase a whole "
            f"{selection.kind} use an unbound credential.",
            field="scope_id" if selection.kind == "scope" else "tenant",
        )
    if selection.participant not in (None, principal.user):
        raise Forbidden(
            "participant: a credential bound to a user can erase only what that user said",
            field="participant",
        )
    return replace(selection, participant=principal.user)


def require_may_erase_events(
    access: TenantDb, principal: Principal, event_ids: Sequence[UUID]
) -> None:
    """Check that the caller may erase these events. Raises NotFound if one is unknown or not in
    view. Raises Forbidden if the credential is bound to a user and an event was neither said by
    that user nor written by an agent with that user's credential. Raises Gone if one was erased
    before."""
    rows_by_id = {
        event.event_id: event
        for event in store_selections.list_erasure_candidates(access, event_ids)
    }
    missing = [one for one in event_ids if one not in rows_by_id]
    marked_events = {
        event.event_id: event
        for event in store_erasure_marks.list_events_being_erased(access, missing)
    }
    if unknown := [str(one) for one in missing if one not in marked_events]:
        raise NotFound(event_ids=unknown[:20])
    erased = [*(one for one, event in rows_by_id.items() if event.is_erased), *marked_events]
    if erased:
        marks = {event.erasure_id for event in marked_events.values()}
        visible = {one for one in marks if store.get_erasure(access, one) is not None}
        erasure_ids = sorted({*store.list_erasures_of_events(access, erased), *visible})
        place = f" Its erasure: GET /api/v1/erasures/{erasure_ids[0]}." if erasure_ids else ""
        raise Gone(
            f"One of these events was erased before.{place}",
            event_ids=[str(one) for one in erased[:20]],
            erasure_ids=[str(one) for one in erasure_ids[:20]],
        )
    if principal.user is not None:
        own = (principal.user,)
        others = [
            str(event.event_id)
            for event in rows_by_id.values()
            if event.said_by not in own and event.writer not in own
        ]
        if others:
            raise Forbidden(
                "A credential bound to a user erases what that user said, and what an agent said "
                "with that user's own credential.",
                event_ids=others[:20],
            )


def make_request_key(access: TenantDb, key: str, request: object) -> RequestKey:
    """Build the key of a request from its `Idempotency-Key` and its content, `request` (JSON)."""
    text = json.dumps(request, sort_keys=True)
    return RequestKey(
        access.sealer.hash_key("erasure", access.caller.writer, key),
        access.sealer.hash_key("erasure request", text),
    )


def make_session_request_key(access: TenantDb, session_id: str) -> RequestKey:
    """Build the key of requests that erase the session with this name."""
    return RequestKey(access.sealer.hash_key("erasure of a session", session_id))


def find_repeated_erasure(
    access: TenantDb, key: RequestKey, scope_id: UUID | None = None
) -> Erasure | None:
    """The erasure that an earlier request with this key started, or None. With `scope_id`, only an
    erasure of that scope. Raises Conflict if the earlier request had different content."""
    repeated = store.find_erasure_by_request_key(access, key, scope_id)
    if repeated is None:
        return None
    if not repeated.is_same:
        raise Conflict("This Idempotency-Key was used before, for another erasure.")
    return store.get_erasure(access, repeated.erasure_id)


def erase_selection(
    access: TenantDb,
    principal: Principal,
    audit_context: AuditContext,
    selection: EventSelection,
    now: datetime,
    key: RequestKey | None = None,
) -> Erasure:
    """Erase the events of a selection, which `restrict_selection_to_caller` has narrowed. None of
    them can be read once this returns. The job continues while `cleared_at` is None. If a
    concurrent request with the same `Idempotency-Key` finished first, returns its erasure. Raises
    NotFound if nothing matches, or if another erasure has already erased it."""
    erasure_id = uuid7()
    event_ids = store_selections.list_event_ids(access, selection, EVENTS_AT_ONCE + 1)
    eraser = access.seeing_erased()
    with eraser.transaction():
        if key is not None and key.fingerprint is not None:
            store.lock_request_key(eraser, key)
            if earlier := find_repeated_erasure(eraser, key):
                return earlier
        store.insert_erasure(
            eraser,
            erasure_id,
            selection.kind,
            _redact_selection_for_receipt(selection),
            _describe_asker(principal),
            now,
            key,
        )
        store_audit.add_audit_entry(
            eraser, audit_context, {"erasure_id": str(erasure_id)}, {"kind": selection.kind}
        )
        if not _clear_or_mark_events(eraser, erasure_id, selection, event_ids, now):
            raise NotFound("There is nothing in view to erase.")
        store.mark_erasure_hidden(eraser, erasure_id)
    erasure = store.get_erasure(access, erasure_id)
    assert erasure is not None, "it was just recorded"
    return erasure


def _clear_or_mark_events(
    access: TenantDb,
    erasure_id: UUID,
    selection: EventSelection,
    event_ids: Sequence[UUID],
    now: datetime,
) -> bool:
    """Clear the events of a selection, or mark them if there are too many. `event_ids` holds some
    of its events. Returns whether there was anything to clear. In a transaction."""
    is_many, has_any = len(event_ids) > EVENTS_AT_ONCE, False
    scope_ids: list[UUID] = []
    if selection.covers_whole_sessions:
        scope_ids = store_sessions.lock_session_scopes(
            access, selection, [] if is_many else event_ids
        )
    if is_many:
        has_any = store_selections.hide_selected_events(access, erasure_id, selection) > 0
    else:
        if event_ids:  # another erasure may have been first
            has_any = _clear_events_and_derived_rows(access, erasure_id, event_ids, now) > 0
        store.mark_erasure_cleared(access, erasure_id)
    counts = _clear_what_cites_no_event(access, erasure_id, selection)
    if selection.covers_whole_sessions:
        counts |= _clear_sessions_and_tenant(access, selection, scope_ids)
    if any(counts.values()):
        store.add_erasure_counts(access, {erasure_id: counts})
    return has_any or any(counts.values())


def _clear_what_cites_no_event(
    access: TenantDb, erasure_id: UUID, selection: EventSelection
) -> dict[str, int]:
    """Clear what the erased participant, or anyone of the tenant, stored that belongs to no event:
    uploads, and of a participant the names of sonas and questions. Returns the number of rows
    cleared in each table. In a transaction."""
    if selection.kind not in ("tenant", "participant") or selection.scope_id is not None:
        return {}
    who = selection.participant
    counts = {"uploads": store.delete_uploads_of_writer(access, erasure_id, who)}
    return counts if who is None else counts | store_memories.delete_names_and_turns(access, who)


def _clear_sessions_and_tenant(
    access: TenantDb, selection: EventSelection, scope_ids: Sequence[UUID]
) -> dict[str, int]:
    """Clear what belongs to a session or the tenant and not to an event. Returns the number of rows
    cleared in each table. In a transaction, with these scopes locked."""
    counts = {"sessions": store_sessions.delete_sessions(access, selection, scope_ids)}
    if selection.kind == "tenant":
        counts["sona_names"] = store_memories.delete_all_sona_names(access)
        counts["turns"] = store_memories.delete_all_turns(access)
    return counts


def clear_marked_events(
    access: TenantDb, erasure: Erasure, mark: ErasureMark, now: datetime
) -> Generator[int]:
    """Turn the events of a mark into tombstones, EVENTS_AT_ONCE in each transaction. Yields the
    number of events after each one. Deletes the mark at the end; once the last mark is deleted, the
    erasure is cleared. The caller's connection must see events that are being erased."""
    selection, is_last = _make_selection_of_mark(erasure, mark), False
    while not is_last:
        event_ids = store_selections.list_event_ids_in_order(
            access, selection, _LISTED * EVENTS_AT_ONCE
        )
        is_last = len(event_ids) < _LISTED * EVENTS_AT_ONCE
        for batch in batched(event_ids, EVENTS_AT_ONCE, strict=False):
            with access.transaction():
                _clear_events_and_derived_rows(access, erasure.erasure_id, batch, now)
            yield len(batch)
    with access.transaction():
        store_selections.delete_finished_mark(access, erasure.erasure_id, mark.n)
        if not store_selections.list_erasure_marks(access, erasure.erasure_id):
            store.mark_erasure_cleared(access, erasure.erasure_id)


def _make_selection_of_mark(erasure: Erasure, mark: ErasureMark) -> EventSelection:
    return EventSelection(
        kind=erasure.kind,
        scope_id=mark.scope_id,
        session_id=mark.session_id,
        participant=mark.said_by,
        until=mark.recorded_until,
        snapshot=mark.snapshot,
    )


def _clear_events_and_derived_rows(
    access: TenantDb, erasure_id: UUID, event_ids: Sequence[UUID], now: datetime
) -> int:
    """Erase these events and everything that rests on them, in the current transaction. Takes locks
    in a fixed order: scopes, chains, graph, events. Derived rows may also cite chains that were
    dropped and are not yet folded again. Returns how many of the events were not erased before."""
    scope_ids = store_derived.lock_scopes_of_events(access, event_ids)
    pending = store.delete_decisions_of_unfolded_chains(access, event_ids)
    dropped_ids = [
        *pending.chain_ids,
        *store_derived.list_chains_of_topic_leaves(access, event_ids),
    ]
    chain_ids = store_derived.lock_chains_of_events(access, event_ids, dropped_ids)
    told_ids = list({*chain_ids, *dropped_ids})
    lock_graph(access, scope_ids)
    counts = Counter(store.erase_events(access, erasure_id, event_ids, now))
    counts["decisions_dropped"] = pending.total
    counts.update(store_derived.unlink_events_from_chains_and_trees(access, event_ids))
    counts.update(store_memories.delete_persona_rows_of_events(access, event_ids))
    if told_ids or pending.total:
        store_derived.queue_chains_for_rebuild(access, chain_ids, erasure_id)
        counts.update(store.blank_derived_texts(access, told_ids, scope_ids, now))
        counts.update(store_derived.delete_or_hide_chains(access, chain_ids))
        counts.update(store_derived.delete_or_queue_trees(access, scope_ids, now))
    targets = store_derived.delete_graph_observations(access, event_ids, told_ids)
    revisions, topics = store_derived.delete_field_revisions(access, event_ids)
    if targets or topics:
        recompute_nodes_and_edges(access, list({*targets, *topics}))
    counts.update({"graph_observations": len(targets), "topic_field_revisions": revisions})
    if access.caller.viewer:
        for name in _OF_OTHERS:
            del counts[name]
    store.add_erasure_counts(access, {erasure_id: counts})
    return counts["events"]


def _redact_selection_for_receipt(selection: EventSelection) -> dict[str, object]:
    """The selection as the receipt shows it. It leaves out the session's name, because callers
    choose it."""
    fields = {
        "event_ids": selection.event_ids and [str(one) for one in selection.event_ids],
        "scope_id": selection.scope_id and str(selection.scope_id),
        "participant": selection.participant,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _describe_asker(principal: Principal) -> dict[str, object]:
    return {"key_id": principal.key_id or None, "user": principal.user}
