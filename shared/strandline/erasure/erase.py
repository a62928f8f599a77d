"""Erase events: one transaction in which they and all that was made of them become unreadable.

What takes time, payloads and what is formed anew, is the job's (`eraser`).
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.auth.principals import Principal
from strandline.db.database import TenantDb
from strandline.erasure import store, store_derived
from strandline.erasure.store import Erasure, Selection
from strandline.errors import Forbidden, Gone, NotFound
from strandline.graph.store_write import compute
from strandline.graph.store_write import lock_scopes as lock_graph
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext

EVENTS_AT_ONCE = 5_000
"""How many events one transaction erases: other writers of their scopes wait for its end."""
_RESERVED_SECONDS = 5.0
"""With less time left than this the rest is left to the job."""


def select_for(principal: Principal, selection: Selection) -> Selection:
    """The selection as this caller may make it: a bound credential erases what its own user said.
    Raises Forbidden."""
    if principal.user is None:
        return selection
    if selection.kind in ("scope", "tenant"):
        raise Forbidden(
            "A credential bound to a user erases what that user said; to erase a whole "
            f"{selection.kind} use one that is bound to nobody.",
            field="scope_id" if selection.kind == "scope" else "tenant",
        )
    if selection.participant not in (None, principal.user):
        raise Forbidden(
            "participant: a credential bound to a user erases what that user said",
            field="participant",
        )
    return replace(selection, participant=principal.user)


def check_events(access: TenantDb, principal: Principal, event_ids: Sequence[UUID]) -> None:
    """Check that the caller may erase these events. Raises NotFound where one is not in view, or is
    unknown; Forbidden where it is not the bound user's own; Gone where it was erased before."""
    found = {event.event_id: event for event in store.get_selected(access, event_ids)}
    missing = [str(one) for one in event_ids if one not in found]
    if missing:
        raise NotFound(event_ids=missing[:20])
    erased = [str(event.event_id) for event in found.values() if event.is_erased]
    if erased:
        raise Gone("An event of these was erased before.", event_ids=erased[:20])
    if principal.user is not None:
        others = [str(e.event_id) for e in found.values() if e.said_by != principal.user]
        if others:
            raise Forbidden(
                "A credential bound to a user erases what that user said.", event_ids=others[:20]
            )


def erase(
    access: TenantDb,
    principal: Principal,
    audit_context: AuditContext,
    selection: Selection,
    now: datetime,
    deadline: float,
) -> Erasure:
    """Erase what a selection names, which `select_for` has narrowed. It is unreadable when this
    returns, unless `hidden_at` is None: then the job goes on with the rest. `deadline` is in
    time.monotonic() seconds. Raises NotFound where nothing matches."""
    erasure_id = uuid7()
    event_ids = store.list_matching(access, selection, EVENTS_AT_ONCE)
    if not event_ids:
        raise NotFound("There is nothing in view to erase.")
    with access.transaction():
        store.add_erasure(
            access, erasure_id, selection.kind, _to_target(selection), _asked_by(principal), now
        )
        store_audit.add_entry(
            access, audit_context, {"erasure_id": str(erasure_id)}, {"kind": selection.kind}
        )
        _hide_events(access, erasure_id, event_ids, now)
        is_last = len(event_ids) < EVENTS_AT_ONCE
        if is_last:
            _end_hiding(access, erasure_id, selection, now)
    if not is_last:
        hide_rest(access, erasure_id, selection, now, deadline - _RESERVED_SECONDS)
    erasure = store.get_erasure(access, erasure_id)
    assert erasure is not None, "it was just recorded"
    return erasure


def hide_rest(
    access: TenantDb, erasure_id: UUID, selection: Selection, now: datetime, deadline: float
) -> bool:
    """Go on until no event matches, or the time is up. Returns whether nothing is left."""
    while time.monotonic() < deadline:
        event_ids = store.list_matching(access, selection, EVENTS_AT_ONCE)
        with access.transaction():
            if event_ids:
                _hide_events(access, erasure_id, event_ids, now)
            if len(event_ids) < EVENTS_AT_ONCE:
                _end_hiding(access, erasure_id, selection, now)
                return True
    return False


def _end_hiding(access: TenantDb, erasure_id: UUID, selection: Selection, now: datetime) -> None:
    """Nothing is left to hide: the sessions go, and the session's name with them. In a
    transaction."""
    is_whole = selection.participant is None and selection.kind in ("session", "scope", "tenant")
    if is_whole:
        counts = store_derived.delete_sessions(access, selection.scope_id, selection.session_id)
        store.add_counts(access, erasure_id, counts)
    target = {name: one for name, one in _to_target(selection).items() if name != "session_id"}
    store.mark_hidden(access, erasure_id, target, now)


def _hide_events(
    access: TenantDb, erasure_id: UUID, event_ids: Sequence[UUID], now: datetime
) -> None:
    """Erase these events and all that rests on them, in the transaction under way. Locks are taken
    in one order: scopes, chains, graph, events."""
    scope_ids = store_derived.lock_scopes(access, event_ids)
    chain_ids = store_derived.lock_chains(access, event_ids)
    lock_graph(access, scope_ids)
    counts = Counter(store.erase_events(access, erasure_id, event_ids, now))
    counts.update(store_derived.unlink_events(access, event_ids))
    if chain_ids:
        store_derived.queue_chains(access, chain_ids, erasure_id)
        counts.update(store.blank_chains(access, chain_ids, scope_ids, now))
        counts.update(store_derived.settle_chains(access, chain_ids))
        counts.update(store_derived.settle_trees(access, scope_ids, now))
    targets = store_derived.withdraw_observations(access, event_ids, chain_ids)
    revisions, topics = store_derived.delete_revisions(access, event_ids)
    if targets or topics:
        compute(access, list({*targets, *topics}))
    counts.update({"graph_observations": len(targets), "topic_field_revisions": revisions})
    store.add_counts(access, erasure_id, counts)


def _to_target(selection: Selection) -> dict[str, object]:
    fields = {
        "event_ids": selection.event_ids and [str(one) for one in selection.event_ids],
        "scope_id": selection.scope_id and str(selection.scope_id),
        "session_id": selection.session_id,
        "participant": selection.participant,
    }
    return {name: value for name, value in fields.items() if value is not None}


def to_selection(erasure: Erasure) -> Selection:
    """What an erasure that is still being hidden is about."""
    target = erasure.target
    return Selection(
        kind=erasure.kind,
        event_ids=[UUID(one) for one in target["event_ids"]] if "event_ids" in target else None,
        scope_id=UUID(target["scope_id"]) if "scope_id" in target else None,
        session_id=target.get("session_id"),
        participant=target.get("participant"),
    )


def _asked_by(principal: Principal) -> dict[str, object]:
    return {"key_id": principal.key_id or None, "user": principal.user}
