"""Promise: at 100,000 events in 20,000 scopes, and for a caller in 5,000 of them, every hot
statement goes by index, asks no policy by a subquery, and reads no more than it must."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import md5, sha256
from itertools import islice
from typing import Any
from uuid import UUID

import pytest

from strandline.auth import store_tenants_and_keys
from strandline.chains import fold_recalls_into_heat, recall_echoes, store_recalls
from strandline.config_quotas import Quota
from strandline.cursors import Position
from strandline.db.connection import Connection
from strandline.db.database import NOBODY, Caller, Database, TenantDb
from strandline.embeddings.vector_formats import pack_vector
from strandline.local.postgres import EmbeddedPostgres
from strandline.log import store as log_store
from strandline.log import (
    store_scopes,
    store_tenant_counts,
    store_uploads,
    store_work,
)
from strandline.log.store_links_and_sources import find_edge_targets
from strandline.recall import importance, store_importance
from strandline.recall import store as recall_store
from strandline.recall.cosine_scale import SAMPLED_EVENTS
from strandline.sessions import store as sessions_store
from strandline.sessions import store_chains
from strandline.tenants import store_audit, store_quotas
from strandline.tuning import DEFAULTS
from tests.prove.append_history import AppendOp, build_events
from tests.prove.large_tenant import (
    COMMON,
    DIMENSIONS,
    HELPER,
    NARROW,
    RARE,
    SILENT,
    SPACE,
    TENANT,
    UPLOADER,
    WIDE,
    LargeTenant,
    fill_tenant,
)
from tests.query_plans import Explainer, nodes, rows_read
from tests.support import ScratchDatabase, unique_name

EVENTS, SCOPES, PAGE = 100_000, 20_000, 50
MOST_TIMES_UNKNOWN = 10
"""How often all events of a tenant that statistics do not know may be read. Of a foreign key's
check, the first five plans in a session are made for the tenant by name."""
SMALL = {"scope_work", "pg_class"}
"""Tables that may be read from end to end: of scope_work there is as much as there is to do."""
pytestmark = pytest.mark.own_database
_VECTOR = [0.1] * DIMENSIONS

type Call = Callable[[TenantDb], object]


@dataclass(frozen=True)
class Before:
    """What is asked before any tenant is known."""

    call: Callable[[Connection], object]


@dataclass(frozen=True)
class Hot:
    """A hot statement, who runs it, and how many rows of tables it may read."""

    viewer: tuple[str, ...]
    call: Call | Before
    most: int
    whole: frozenset[str] = frozenset()
    """Tables that it is there to count, once a scrape or a sweep, and may read from end to end."""
    writer: str = NOBODY

    def run(self, database: Database) -> object:
        """Run it."""
        if isinstance(self.call, Before):
            return self.call.call(database.connection())
        return self.call(database.connect_as(Caller(TENANT, self.viewer, self.writer)))


def list_call(
    pages: int = 1,
    filters: Mapping[str, object] | None = None,
    scope_id: UUID | None = None,
    text: str | None = None,
) -> Call:
    """A list's first pages."""

    def call(access: TenantDb) -> object:
        place: Position | None = None
        for _ in range(pages):
            rows = log_store.list_newest(
                access,
                filters=filters or {},
                scope_id=scope_id,
                text=text,
                after=place,
                limit=PAGE,
                page_bytes=10**7,
            ).rows
            last = rows[-1] if rows else None
            place = last and Position(last.pg_snapshot, last.recorded_at, last.scope_id, last.seq)
        return place

    return call


def scopes_listed(access: TenantDb) -> object:
    """The first page of scopes, and the next."""
    last = store_scopes.list_newest(access, None, PAGE)[-1]
    return store_scopes.list_newest(
        access, Position(last.pg_snapshot, last.created_at, last.scope_id), PAGE
    )


def recall_call(question: str, *, vector: bool = True, **narrowing: str) -> Call:
    """A recall by words, vectors and freshness."""
    return lambda access: recall_store.search_candidate_events(
        access,
        question=question,
        vector=_VECTOR if vector else None,
        space=SPACE,
        filters=narrowing,
        now=datetime.now(UTC),
    )


def append_call(size: int) -> Call:
    """An append of `size` events into as many scopes, half of them new."""
    ops = [
        AppendOp(f"new {n}", (HELPER, f"user:p{n if n % 2 else -n}"), f"key {n}")
        for n in range(size)
    ]
    return lambda access: log_store.append_events(access, build_events(ops), atomic=False)


def inside(call: Call) -> Call:
    """What runs in a transaction of its caller's."""

    def call_function(access: TenantDb) -> object:
        with access.transaction():
            return call(access)

    return call_function


def trail(access: TenantDb) -> object:
    """The first page of the audit trail, and the next."""
    last = store_audit.list_newest(access, None, PAGE)[-1]
    return store_audit.list_newest(access, Position(last.pg_snapshot, last.at, last.audit_id), PAGE)


def keys_listed(access: TenantDb) -> object:
    """The first page of keys, and the next."""
    last = store_tenants_and_keys.list_newest_keys(access, None, PAGE)[-1]
    return store_tenants_and_keys.list_newest_keys(
        access, Position(last.pg_snapshot, last.created_at, UUID(last.key_id)), PAGE
    )


def work(access: TenantDb) -> object:
    """A worker's round over the scopes that are due."""
    leases = store_work.lease_due_scopes(access, None, 20)
    ids = [lease.scope_id for lease in leases]
    result = store_work.list_unembedded_events(access, ids, SPACE, 128)
    assert len(leases) == len(result) == 20
    hashes = [sha256(str(event.event_id).encode()).digest() for event in result]
    assert store_work.read_cached_vectors(access, SPACE, hashes) == {}
    vectors = [
        store_work.EventVector(event, h, pack_vector(_VECTOR), None)
        for event, h in zip(result, hashes, strict=True)
    ]
    with access.transaction():
        store_work.store_event_vectors(access, SPACE, vectors, result)
    with access.transaction():
        return store_work.release_scope_leases(
            access, ids, SPACE, reading_space=SPACE, made_progress=True
        )


def hot(crowd: LargeTenant) -> dict[str, Hot]:
    """Every hot statement. The bounds: a point takes a handful; a list a hundred of the tenant's
    newest events for each of its page, or for words twenty, then those that hold the words; what
    that leaves open, and recall, the view; for a part of a word also every scope, for texts that
    are not indexed yet. A filter takes of recall the events that hold the words,
    the nearest ten times over, and, where those are too few, all in view. A recall's sample takes
    its events, their vectors, and every scope in view."""
    view, in_view, few = crowd.scopes // 4, crowd.events // 3, log_store.MAX_LISTED_SCOPES + 1
    reach, words = 100 * (PAGE + 1), crowd.events // 10
    page = 20 * PAGE
    # of a large view: the codes of all vectors; of words a sample, and what a bound leaves of them
    in_part = 10_000 + 3 * crowd.scopes
    in_all = crowd.events + in_part + 2 * crowd.scopes
    sampled = 2 * SAMPLED_EVENTS + view
    pending = 3 * view // 50
    most = words + 2 * view + in_view + page + sampled + pending
    nearest = 10 * recall_store.CANDIDATES
    wide, narrow, removed_ids = (WIDE,), (NARROW,), (SILENT,)
    edge = {"event_id": str(crowd.event_id), "participants": [WIDE]}
    by_cid = {"cid": crowd.cid, "participants": [WIDE]}
    day = (datetime.now(UTC) - timedelta(seconds=crowd.events * 5)).isoformat()  # half of all time
    return {
        **around_requests(crowd),
        **in_the_background(crowd),
        **around_sessions(crowd),
        "append one": Hot((), append_call(1), 60),
        "append fifty": Hot((), append_call(50), 50 * 60),
        "edges": Hot(wide, lambda a: find_edge_targets(a, [edge, by_cid]), 10),
        "event": Hot(wide, lambda a: log_store.get_event(a, crowd.event_id), 10),
        "memory": Hot(wide, lambda a: log_store.find_earliest_by_cid(a, crowd.cid), 10),
        "payload": Hot(wide, lambda a: log_store.find_payload(a, crowd.blob_cid), 10),
        "feed": Hot(wide, lambda a: log_store.read_feed(a, crowd.busiest, 9, PAGE, 10**7), page),
        "scope": Hot(wide, lambda a: store_scopes.get_scope(a, crowd.busiest), 1),
        "scopes": Hot(wide, scopes_listed, 4 * view + page),
        "scopes of few": Hot(narrow, scopes_listed, page),
        "list": Hot(wide, list_call(), 2 * reach),
        "list, three pages": Hot(wide, list_call(pages=3), 3 * 2 * reach),
        "list of few": Hot(narrow, list_call(), 5 * 2 * PAGE + page),
        "list of few beside many": Hot((HELPER, NARROW), list_call(), 5 * 2 * PAGE + page),
        "list of a scope": Hot(wide, list_call(scope_id=crowd.busiest), page),
        "list of the silent": Hot(removed_ids, list_call(), 2 * reach + 4 * view + page),
        "list of an admin": Hot((), list_call(pages=3), 3 * 2 * reach),
        "list of an admin by a role of nobody": Hot(
            (), list_call(filters={"role": "system"}), 2 * reach + crowd.events
        ),
        "list of a session": Hot(
            wide, list_call(filters={"session_id": "session-9"}), few + 20 * 3 * 5
        ),
        "list of a session of many": Hot(
            wide, list_call(filters={"session_id": "session-2"}), 2 * reach + 4 * view + page
        ),
        "list of a session of nobody": Hot(wide, list_call(filters={"session_id": "none"}), few),
        "list of few of a session of many": Hot(
            narrow, list_call(filters={"session_id": "session-0"}), 5 * 2 * page
        ),
        "list by a role of nobody": Hot(
            wide, list_call(filters={"role": "system"}), 2 * reach + view + in_view
        ),
        "list by role": Hot(wide, list_call(filters={"role": "agent"}), 2 * reach),
        "list by common word": Hot(wide, list_call(text=COMMON), reach + 3 * words),
        "list by rare word": Hot(wide, list_call(text=RARE), reach + words),
        "list by a word of nobody": Hot(wide, list_call(text="unheardof"), reach),
        "list by part of a common word": Hot(
            wide, list_call(filters={"contains": COMMON[1:].upper()}), reach + 3 * words
        ),
        "list by part of a rare word": Hot(
            wide, list_call(filters={"contains": RARE[1:]}), reach + words + crowd.scopes
        ),
        "list by a part of nobody": Hot(
            wide, list_call(filters={"contains": "unheardof"}), reach + crowd.scopes
        ),
        "list of a scope by common word": Hot(
            wide, list_call(text=COMMON, scope_id=crowd.busiest), page + 2 * words
        ),
        "list of a scope by a word of nobody": Hot(
            wide, list_call(text="unheardof", scope_id=crowd.busiest), page
        ),
        "list of a scope by a part of nobody": Hot(
            wide, list_call(filters={"contains": "unheardof"}, scope_id=crowd.busiest), page
        ),
        "recall": Hot(wide, recall_call(f"the {COMMON}"), most),
        "recall of a rare word": Hot(wide, recall_call(RARE), most),
        "recall without a vector": Hot(wide, recall_call(COMMON, vector=False), words + 4 * view),
        "recall of all": Hot((HELPER,), recall_call(f"the {COMMON}"), in_all),
        "recall of all of an admin": Hot((), recall_call(f"the {COMMON}"), in_all),
        "recall of all without a vector": Hot(
            (HELPER,), recall_call(f"{COMMON} {RARE}", vector=False), in_part
        ),
        "recall by role": Hot(wide, recall_call(COMMON, role="agent"), most + words + nearest),
        "recall by time": Hot(wide, recall_call(COMMON, since=day), most + words + nearest),
        "recall by a role of nobody": Hot(
            wide, recall_call(COMMON, role="system"), most + words + nearest + in_view
        ),
        "recall of a session": Hot(
            wide,
            recall_call(COMMON, session_id="session-2"),
            # of few words, what the candidates themselves take
            max(2 * (words + view), 2_000) + sampled,
        ),
        "recall of few by role": Hot(narrow, recall_call(COMMON, role="agent"), words + sampled),
        "recall of few": Hot(narrow, recall_call(COMMON), words + sampled),
        "worker": Hot((), work, 20 * 60),
    }


def around_requests(crowd: LargeTenant) -> dict[str, Hot]:
    """What stands around requests: keys, quotas, the trail; uploads, of which one CID has a
    hundredth. Where many events hold a payload, the earliest in view is found by time."""
    secret = sha256(f"{TENANT}7".encode()).digest()
    of_one_cid = crowd.events // 10 // 100
    requests = [
        {"place": n, "cid": cid, "participants": [WIDE]}
        for n, cid in enumerate([crowd.upload_cid, crowd.blob_cid, "cid-nowhere"])
    ]
    shared = [{"place": 0, "cid": crowd.shared_cid, "participants": [WIDE]}]
    announced = (crowd.upload_cid, 9, None, "another file", 60)
    defaults: dict[Quota, int] = {
        "requests": 600,
        "appends": 600,
        "stored_bytes": 10**9,
    }
    return {
        "key": Hot(
            (),
            Before(lambda c: store_tenants_and_keys.find_key_principal(c, f"{TENANT}7", secret)),
            2,
        ),
        "keys": Hot((), keys_listed, 3 * PAGE),
        "one key": Hot((), lambda a: store_tenants_and_keys.get_key(a, f"{TENANT}7"), 1),
        "trail": Hot((), trail, 3 * PAGE),
        "tenant names": Hot(
            ("*",), lambda a: store_tenants_and_keys.list_tenants(a, "tenant-2", PAGE), PAGE
        ),
        "quota": Hot((), lambda a: store_quotas.lease_quota_units(a, "requests", 1, 600, 10), 6),
        "usage": Hot((), lambda a: store_quotas.read_quota_usage(a, defaults, 10), 6),
        "cite": Hot(
            (WIDE,),
            lambda a: store_uploads.look_up_cited_payloads(a, requests),
            2 * of_one_cid,
            writer=UPLOADER,
        ),
        "cite what many hold": Hot(
            (WIDE,), lambda a: store_uploads.look_up_cited_payloads(a, shared), 100
        ),
        "payload of many": Hot((WIDE,), lambda a: log_store.find_payload(a, crowd.shared_cid), 100),
        "announce": Hot(
            (),
            lambda a: store_uploads.find_stored_payload_or_pending_upload(a, *announced),
            2 * of_one_cid,
            writer=UPLOADER,
        ),
    }


def sessions_listed(access: TenantDb) -> object:
    """The first page of sessions, and the next."""
    newest = sessions_store.list_newest_open_sessions(access, None, PAGE)
    last = newest.rows[:PAGE][-1]
    return sessions_store.list_newest_open_sessions(
        access, Position(newest.pg_snapshot, last.created_at, last.place), PAGE
    )


def chains_searched(access: TenantDb, scope_id: UUID | None) -> object:
    """A search for chains of a scope, or of all in view."""
    rows = recall_store.search_candidate_events(
        access,
        question=COMMON,
        vector=_VECTOR,
        space=SPACE,
        filters={},
        now=datetime.now(UTC),
        scopes=[scope_id] if scope_id else None,
    ).rows
    return store_chains.list_relevant_chains(
        access,
        scope_id,
        session_id=None,
        relevance={row.event_id: row.cosine or 0.0 for row in rows},
        vector=_VECTOR,
        space=SPACE,
        limit=PAGE,
    )


def around_sessions(crowd: LargeTenant) -> dict[str, Hot]:
    """What is asked of one session, and the list of them: of a name that is in every scope those in
    view are looked at, of a list a page in each."""
    view, few, name = crowd.scopes // 4, 20 * PAGE, "session-0"
    in_view = crowd.events // 3
    scope, now = crowd.chained_scope_id, datetime.now(UTC) - timedelta(days=99)
    chains = max(60, crowd.events // crowd.scopes * 20)
    return {
        "session": Hot((WIDE,), lambda a: sessions_store.list_sessions_by_name(a, name, scope), 40),
        "session of many": Hot(
            (NARROW,),
            lambda a: sessions_store.list_sessions_by_name(a, name, None),
            2 * crowd.scopes,
        ),
        "session of many, of any": Hot(
            (),
            lambda a: sessions_store.list_sessions_by_name(a, name, None),
            3 * crowd.scopes,
            frozenset({"sessions"}),  # it is in every scope: most rows are looked at anyway
        ),
        "sessions": Hot((WIDE,), sessions_listed, 30 * view),
        "sessions of few": Hot((NARROW,), sessions_listed, 5 * few),
        "recent": Hot(
            (WIDE,), lambda a: sessions_store.list_recent_session_events(a, name, scope, now), few
        ),
        "recent as shown": Hot(
            (WIDE,), lambda a: sessions_store.read_short_term_events(a, [crowd.event_id]), 8
        ),
        "recent in view": Hot(
            (WIDE,), lambda a: sessions_store.list_recent_visible_events(a, now), 4 * view + in_view
        ),
        "latest chains": Hot(
            (WIDE,), lambda a: store_chains.list_latest_chains(a, scope, PAGE), 20 * PAGE
        ),
        "latest chains in view": Hot(
            (WIDE,), lambda a: store_chains.list_latest_chains(a, None, PAGE), 4 * view + 20 * PAGE
        ),
        "latest chains of a session": Hot(
            (WIDE,),
            lambda a: store_chains.list_latest_chains(a, scope, PAGE, session_id=name),
            20 * PAGE,
        ),
        "chains in view about": Hot(
            (WIDE,),
            partial(chains_searched, scope_id=None),
            crowd.events // 10 + 15 * view + 2 * SAMPLED_EVENTS,
        ),
        "chains about": Hot(
            (WIDE,),
            partial(chains_searched, scope_id=scope),
            crowd.events // 10 + chains,
        ),
        "segments": Hot(
            (WIDE,),
            lambda a: store_chains.list_session_chains(
                a, name, scope, statuses=["active"], after=None, limit=PAGE
            ),
            40 + few,
        ),
        "begin a session": Hot(
            (),
            inside(lambda a: sessions_store.lock_name_and_find_collision(a, "a new one", scope)),
            2,
        ),
        "end a session": Hot((), lambda a: sessions_store.end_session(a, name, scope, now), few),
    }


def in_the_background(crowd: LargeTenant) -> dict[str, Hot]:
    """What a scrape and each sweep read: of scopes and their progress all of one tenant or of
    everybody, to count bytes also all uploads and payloads, of quotas all; of uploads to remove
    those that are due. Jobs are those of 30 days, models' states a few."""
    of_all, due = crowd.scopes * 11 // 10, crowd.events // 10 // 5
    tables, chains = frozenset({"scopes", "embedding_progress"}), crowd.events // 10
    return {
        "metrics": Hot(
            (),
            lambda a: store_tenant_counts.read_tenant_counters(a, SPACE),
            2 * of_all + of_all // 20 + chains + chains // 10,
            tables | {"chains", "jobs", "model_states"},
        ),
        "what waits": Hot(
            (), lambda a: store_tenant_counts.read_due_work(a, SPACE), of_all + 4 * due, tables
        ),
        **around_recalls(crowd),
        "measure": Hot(
            (),
            inside(store_quotas.recount_stored_usage),
            of_all + (2 * crowd.events // 10 + crowd.scopes // 2) * 11 // 10,
            frozenset({"scopes", "uploads", "blobs"}),
        ),
        "whom to measure": Hot(
            (),
            Before(lambda c: store_quotas.list_tenants_to_recount(c, 600, 100)),
            20_000,
            frozenset({"quotas"}),
        ),
        "name what is due": Hot(
            (),
            inside(lambda a: store_work.enqueue_unfinished_scopes(a, SPACE)),
            2 * of_all + of_all // 20,
            tables,
        ),
        "whose work is due": Hot(
            (),
            Before(lambda c: store_work.list_tenants_with_work(c, SPACE)),
            2 * of_all + of_all // 20,
            tables,
        ),
        "whose uploads are due": Hot(
            (), Before(store_uploads.list_tenants_with_expired_uploads), due
        ),
        "who has uploads due": Hot(
            (), lambda a: store_uploads.list_writers_with_expired_uploads(a, 100), due
        ),
        "uploads due": Hot(
            (), lambda a: store_uploads.list_expired_uploads(a, 500), due, writer=UPLOADER
        ),
    }


def around_recalls(crowd: LargeTenant) -> dict[str, Hot]:
    """What a recall of chains leaves, and what the sweeper makes of it: so many chains at a time,
    whatever else waits, but all recalls that are to go; to name tenants, every one is looked at."""
    now, arguments = datetime.now(UTC), (crowd.event_id, crowd.busiest, crowd.participants)
    deployment, tenants = DEFAULTS, max(crowd.scopes // 4, 1000) + 2
    waiting = crowd.events // 10 // 20 * 2
    ids = (md5(f"{TENANT}event{n}".encode(), usedforsecurity=False) for n in range(1, 451))
    candidates = [(UUID(bytes=digest.digest()), crowd.busiest) for digest in ids]

    def use_answer(access: TenantDb) -> object:
        return store_importance.read_daily_event_uses(
            access, candidates, now, importance.WINDOW_DAYS
        )

    return {
        "record a recall": Hot(
            (WIDE,),
            lambda a: store_recalls.record_recalled_chains(
                a, crowd.event_id, [arguments] * 50, now
            ),
            10,
        ),
        "record what a recall gave": Hot(
            (WIDE,),
            lambda a: store_recalls.record_recalled_events(
                a, crowd.event_id, [crowd.event_id] * 100, now
            ),
            200,
        ),
        "what was given": Hot(
            (),
            lambda a: recall_echoes.read_recalled_texts(a, crowd.participants, now, now),
            500,
        ),
        "fold recalls": Hot(
            (),
            lambda a: fold_recalls_into_heat.fold_tenant_recalls_into_heat(a, now, 20, deployment),
            200 + waiting,
        ),
        "go through chains": Hot(
            (), lambda a: fold_recalls_into_heat.recompute_heat_times(a, 50, deployment), 4 * 50
        ),
        "old recalls": Hot(
            (),
            lambda a: fold_recalls_into_heat.delete_old_recalls(
                a, now - fold_recalls_into_heat.RETENTION, 50
            ),
            3 * 50 + crowd.events // 30,
        ),
        "use of candidates": Hot((WIDE,), use_answer, 450 * 5),
        "fold use": Hot(
            (),
            inside(lambda a: store_importance.fold_answers_into_event_uses(a, now, 20)),
            20 * 9 * 12,
        ),
        "old use": Hot((), lambda a: importance.delete_expired_event_uses(a, now, 50), 3 * 50),
        "whose recalls are due": Hot(
            (),
            Before(lambda c: fold_recalls_into_heat.list_due_tenants(c, deployment, now)),
            6 * tenants + waiting,
            frozenset({"tenants"}),
        ),
    }


def wrong(plans: Sequence[Mapping[str, Any]], one: Hot) -> list[str]:
    """What of these plans breaks the promise."""
    results: list[str] = []
    read = 0.0
    assert plans, "nothing was explained"
    for statement in plans:
        text = " ".join(statement["Query Text"].split())[:60]
        for node in nodes(statement["Plan"]):
            read += rows_read(node)
            table = node.get("Relation Name")
            if node["Node Type"] == "Seq Scan" and table not in SMALL | one.whole:
                results.append(f"sequential scan of {table}: {text}")
            if node.get("Parent Relationship") == "SubPlan":
                results.append(f"a subquery, {node['Actual Loops']} times: {text}")
    if read > one.most:
        results.append(f"{read:.0f} rows read, {one.most} are promised")
    return results


PREPARED_CALLS = 9
"""So often a statement is sent until it is prepared, and then until Postgres keeps its plan."""
ONCE = frozenset(
    {
        "worker",
        "record a recall",
        "record what a recall gave",
        "fold recalls",
        "fold use",
        "old recalls",
        "old use",
    }
)
"""What takes what there is for one call, or leaves more to read for those that follow."""


@pytest.fixture
def crowd(scratch_db: ScratchDatabase, proof_size: Callable[[int], int]) -> LargeTenant:
    """The promised size."""
    return fill_tenant(scratch_db, max(6_000, proof_size(EVENTS)), max(1_200, proof_size(SCOPES)))


def explain_each(
    base: ScratchDatabase, query: Mapping[str, Hot]
) -> Iterator[tuple[str, list[Mapping[str, Any]], float]]:
    """Of each statement its name, its plans, and how many rows of tables they read."""
    explanation = Explainer(base)
    with closing(explanation.database) as database:
        for name, one in query.items():
            plans: list[Mapping[str, Any]] = []
            for _ in range(1 if name in ONCE else PREPARED_CALLS):
                plans = explanation.plans(partial(one.run, database))
            read = sum(rows_read(node) for plan in plans for node in nodes(plan["Plan"]))
            print(f"  {name}: {read:.0f} rows read, at most {one.most}")
            yield name, plans, read


def faults(base: ScratchDatabase, query: Mapping[str, Hot]) -> dict[str, list[str]]:
    """By statement, what is wrong with its plans."""
    results = {name: wrong(plans, query[name]) for name, plans, _ in explain_each(base, query)}
    return {name: what for name, what in results.items() if what}


def test_plan_of_hot_statement_goes_by_index(
    scratch_db: ScratchDatabase, crowd: LargeTenant
) -> None:
    print(f"\n{crowd.events} events in {crowd.scopes} scopes, {crowd.scopes // 4} of them in view:")
    assert faults(scratch_db, hot(crowd)) == {}


def test_plan_without_statistics_does_not_read_tenant_per_row(
    scratch_db: ScratchDatabase, proof_size: Callable[[int], int]
) -> None:
    """As after many events of a new tenant, which no ANALYZE met: plans are worse, but what they
    read grows with the tenant, not with its square."""
    events, scopes = max(3_000, proof_size(EVENTS) // 5), max(1_200, proof_size(SCOPES) // 5)
    crowd = fill_tenant(scratch_db, events, scopes, is_in_statistics=False)
    assert find_excessive_reads(scratch_db, crowd) == {}


@pytest.mark.proof
def test_plan_test_detects_planning_for_tenant_name(scratch_db: ScratchDatabase) -> None:
    crowd = fill_tenant(scratch_db, 3_000, 1_200, is_in_statistics=False)
    scratch_db.rows(
        "create or replace function current_tenant() returns text language sql stable parallel safe"
        " return nullif(current_setting('strandline.tenant', true), '')"
    )
    excess = find_excessive_reads(scratch_db, crowd)
    assert excess.keys() >= {"recall", "chains in view about", "list by common word"}, excess


def find_excessive_reads(base: ScratchDatabase, crowd: LargeTenant) -> dict[str, float]:
    """The statements that read more than a tenant costs that statistics do not know, with the
    number of rows."""
    query, most = hot(crowd), MOST_TIMES_UNKNOWN * crowd.events
    reads = {name: read for name, _, read in explain_each(base, query)}
    return {name: read for name, read in reads.items() if read > query[name].most + most}


_BY_SUBQUERY = """
drop policy in_view on {table};
create policy in_view on {table} to strandline_app using (
    tenant_id = current_tenant() and exists (
        select from scope_members m where m.tenant_id = {table}.tenant_id
            and m.scope_id = {table}.scope_id and m.participant = any (current_viewer())))
"""
_WORDS_THEN_ALL_EVENTS = """
create or replace function search_words(
    p_words text[], p_scopes uuid[], p_filter jsonb, p_events bigint, p_limit int)
returns table (event_id uuid, start_char int, end_char int, word_bits bigint, weight float8,
    document_counts bigint[])
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select w.event_id, w.start_char, w.end_char, 1::bigint, ts_rank(w.words, q)::float8,
        null::bigint[]
    from event_search w, (
        select string_agg(word_query(word, '')::text, ' | ')::tsquery as q
        from unnest(p_words) word) query
    where w.tenant_id = current_tenant() and w.participants @> current_viewer()
        and w.words @@ q and (p_filter = '{}' or exists (
            select from events e
            where e.tenant_id = w.tenant_id and e.event_id = w.event_id
                and matches_filter(e, p_filter)))
    order by 5 desc limit p_limit $$
"""
# What is broken, by which statement, and where it shows.
_BROKEN = {
    "events by subquery": (_BY_SUBQUERY.format(table="events"), "list of the silent"),
    "vectors by subquery": (_BY_SUBQUERY.format(table="event_vectors"), "recall"),
    "no order by time": ("drop index events_newest", "list"),
    "no address": ("drop index events_cid", "memory"),
    "no payloads": ("drop index events_blob", "payload"),
    "payloads in no order": (
        "drop index events_blob; create index events_blob on events (tenant_id, blob_cid)"
        " where blob_cid is not null",
        "cite what many hold",
    ),
    "no sessions by name": (
        "alter table sessions drop constraint sessions_pkey",
        "list of a session",
    ),
    "quotas from end to end": (
        "alter function lease_quota set enable_indexscan = off;"
        " alter function lease_quota set enable_bitmapscan = off",
        "quota",
    ),
    "no recalls by chain": ("drop index recalls_new", "whose recalls are due"),
    "no use by event": (
        "alter table event_uses drop constraint event_uses_pkey",
        "use of candidates",
    ),
    "no use by day": ("drop index event_uses_day", "old use"),
    "no recalls by age": ("drop index recalls_folded", "old recalls"),
    "no uploads by address": ("drop index uploads_cid", "announce"),
    "no uploads by time": ("drop index uploads_due", "whose uploads are due"),
    "no trail by time": ("alter table audit_log drop constraint audit_log_pkey", "trail"),
    "no keys by time": ("drop index api_keys_newest", "keys"),
    "no words": ("drop index event_search_words", "recall without a vector"),
    "no parts of words": ("drop index event_texts_trigrams", "list by part of a rare word"),
    "no members": ("alter table scope_members drop constraint scope_members_pkey", "scopes"),
    "a filter by subquery": (_WORDS_THEN_ALL_EVENTS, "recall by role"),
    "no sessions of a scope": ("drop index events_lane", "recall of a session"),
    "no events by key": (
        "alter table events drop constraint events_pkey cascade",
        "recall by role",
    ),
    "no codes": (
        "alter table event_vectors drop constraint event_vectors_pkey",
        "recall of all",
    ),
    "no switches by tenant": (
        "alter table space_switches drop constraint space_switches_pkey",
        "recall",
    ),
    "no vectors by scope": (
        "alter table event_vectors drop constraint event_vectors_pkey",
        "recall of few",
    ),
}


@pytest.mark.proof
def test_plan_test_detects_broken_policy_or_missing_index(
    scratch_db: ScratchDatabase, server: EmbeddedPostgres, request: pytest.FixtureRequest
) -> None:
    small = fill_tenant(scratch_db, 6_000, 1_200)
    step = 1 if request.config.getoption("--full") else 5
    question = hot(small)
    for fault, (statement, name) in islice(_BROKEN.items(), 0, None, step):
        scratch_database = ScratchDatabase(server, unique_name())
        server.clone_database(scratch_db.name, scratch_database.name)
        scratch_database.rows(statement)
        print(f"\n{fault}:")
        assert faults(scratch_database, {name: question[name]}), fault
        server.drop_database(scratch_database.name)
