"""Statements: stored with the rows that cite them, once, and passed by the fold."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from strandline.aws.blobs import BlobStore
from strandline.aws.work_queue import WorkQueue
from strandline.chains import fold_state
from strandline.chains.fold_scope import close_idle_lanes
from strandline.chains.refold import drop_chains_of_scopes
from strandline.config import ServiceSettings
from strandline.db.database import Caller, Database
from strandline.errors import Conflict, Forbidden, Invalid, QuotaExceeded
from strandline.http.writer import make_caller
from strandline.jobs.worker_resources import WorkerResources
from strandline.local.aws import LocalAws
from strandline.log.append_state import AppendResult
from strandline.log.statement_events import (
    MAX_STATEMENT_CHARS,
    append_statement_events,
    build_statement_events,
    charge_and_store_statements,
)
from strandline.tenants.quotas import QuotaManager
from tests.statements import ALICE, HELPER, make_principal, make_statement, state
from tests.strandline.chains.fold_fixtures import (
    START,
    TOPICS,
    EchoTasks,
    EventGenerator,
    append,
    dump_state,
    hashes,
    set_tuning,
)
from tests.strandline.embeddings.fake_embedders import WordEmbedder, make_worker, process_due
from tests.support import KEY_SECRET, NO_LIMITS_SETTINGS, Gateway, ScratchDatabase

LATER = datetime(2040, 1, 1, tzinfo=UTC)
FACT = "Alice lives in Berlin."
HARBOUR, BREAD, *_ = TOPICS


@pytest.fixture
def database(scratch_db: ScratchDatabase, gateway: Gateway) -> Iterator[Database]:
    """With a tenant."""
    gateway.key()
    set_tuning(scratch_db)
    connection = Database(scratch_db.url)
    yield connection
    connection.close()


@pytest.fixture
def worker(database: Database, aws: LocalAws) -> WorkerResources:
    """With a minute to work, and a model that finds everything worth keeping."""
    return make_worker(database, BlobStore(aws.bucket), WordEmbedder("words/64", 64), EchoTasks())


def count(base: ScratchDatabase) -> list[tuple[Any, ...]]:
    return base.rows("select (select count(*) from events), (select count(*) from event_keys)")


def only(results: Sequence[AppendResult]) -> AppendResult:
    (result,) = results
    return result


# appending ---------------------------------------------------------------------------------------


def test_statement_is_stored_with_operation(
    scratch_db: ScratchDatabase, database: Database
) -> None:
    operation = {"op": "create", "nodes": [{"kind": "fact", "name": FACT}]}
    at = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)
    result = only(state(database, [make_statement(FACT, operation=operation, occurred_at=at)]))
    assert result.is_new
    assert result.receipt
    assert scratch_db.rows(
        "select event_id, seq, type, role, speaker, session_id, content, metadata, occurred_at,"
        " cid from events"
    ) == [
        (
            result.receipt.event_id,
            1,
            "statement",
            "user",
            ALICE,
            "",
            FACT,
            {"graph": operation},
            at,
            result.receipt.cid,
        )
    ]
    assert scratch_db.rows("select scope_id from scope_work") == [(result.receipt.scope_id,)]


@pytest.mark.parametrize(
    ("user", "fields", "row"),
    [
        (ALICE, {}, (ALICE, "user", ALICE)),
        (ALICE, {"role": "agent", "speaker": HELPER}, (HELPER, "agent", ALICE)),
        (ALICE, {"role": "system"}, (None, "user", ALICE)),
        (None, {"role": "agent"}, (HELPER, "agent", "*")),
        (None, {"role": "system"}, (None, "system", "*")),
        (None, {}, (ALICE, "user", "*")),
    ],
)
def test_statement_origin_follows_credential(
    scratch_db: ScratchDatabase,
    database: Database,
    user: str | None,
    fields: dict[str, Any],
    row: tuple[Any, ...],
) -> None:
    state(database, [make_statement(FACT, **fields)], make_principal(user))
    assert scratch_db.rows("select speaker, origin, writer from events") == [row]


def test_statement_commits_with_citing_rows(
    scratch_db: ScratchDatabase, database: Database
) -> None:
    who = make_principal()
    access = database.connect_as(make_caller(who))
    batch = build_statement_events(
        who, [make_statement(FACT, key="k"), make_statement("It rains.")]
    )
    with contextlib.suppress(ZeroDivisionError), access.transaction():
        append_statement_events(access, batch)
        raise ZeroDivisionError
    assert count(scratch_db) == [(0, 0)]
    assert scratch_db.rows("select count(*) from scopes where last_seq > 0") == [(0,)]
    with access.transaction():
        append_statement_events(access, batch)
    assert count(scratch_db) == [(2, 1)]


def test_statement_replay_gives_first_receipt(
    scratch_db: ScratchDatabase, database: Database
) -> None:
    statements = [make_statement(FACT, key="k#0"), make_statement("It rains.", key="k#1")]
    first = state(database, statements)
    again = state(database, statements)
    assert [result.is_replay for result in (*first, *again)] == [False, False, True, True]
    assert [result.receipt for result in first] == [result.receipt for result in again]
    for other in (
        make_statement("Alice lives in Rome.", key="k#0"),
        make_statement(FACT, key="k#0", operation={"op": "update"}),
    ):
        with pytest.raises(Conflict):
            state(database, [make_statement("It snows."), other])
    assert count(scratch_db) == [(2, 2)]


def test_statement_conflicts_with_message_of_same_key(gateway: Gateway, database: Database) -> None:
    state(database, [make_statement(FACT, key="k")])
    body = {"participants": [ALICE, HELPER], "role": "user", "content": FACT}
    body |= {"metadata": {"graph": {"op": "create", "fact": FACT}}}
    reply = gateway.call(
        "POST", "/api/v1/events", body, key=gateway.key(), headers={"Idempotency-Key": "k"}
    )
    assert (reply.status, reply.error["details"]["fields"]) == (409, ["type"])


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({"content": ""}, Invalid, "content"),
        ({"content": "x" * (MAX_STATEMENT_CHARS + 1)}, Invalid, "content"),
        ({"operation": {"text": "x" * 140_000}}, Invalid, "metadata"),
        ({"operation": {"text": "\x00"}}, Invalid, "metadata.graph.text"),
        ({"speaker": "user:bob"}, Invalid, "speaker"),
        ({"participants": ["user:bob"]}, Forbidden, "participants"),
    ],
)
def test_statement_refusal_names_field(
    fields: dict[str, Any], error: type[Invalid | Forbidden], field: str
) -> None:
    fields = {"content": FACT, "participants": [ALICE, HELPER], **fields}
    content, who = fields.pop("content"), fields.pop("participants")
    with pytest.raises(error) as failure:
        build_statement_events(make_principal(ALICE), [make_statement(content, *who, **fields)])
    assert failure.value.details["field"] == field


def test_statement_of_longest_text_is_no_payload(
    scratch_db: ScratchDatabase, database: Database
) -> None:
    text = "\U0001f30a" * MAX_STATEMENT_CHARS
    state(database, [make_statement(text, operation={})])
    assert scratch_db.rows("select content = %s, blob_cid from events", text) == [(True, None)]


def test_statement_is_charged_and_replay_is_not(
    scratch_db: ScratchDatabase, database: Database
) -> None:
    settings = ServiceSettings(
        database_url="",
        bucket="",
        key_secret=KEY_SECRET,
        tenant_requests_per_minute=10**9,
        tenant_appends_per_minute=1,
    )
    quotas, who = QuotaManager(database, settings), make_principal()
    access = database.connect_as(make_caller(who))
    outputs: list[Sequence[AppendResult]] = []

    def store(*texts: str) -> list[AppendResult]:
        batch = build_statement_events(who, [make_statement(text, key=text) for text in texts])
        return charge_and_store_statements(quotas, WorkQueue(""), access, batch, outputs.append)

    first = store("a")
    assert store("a") == [AppendResult(first[0].receipt, is_replay=True)]
    with pytest.raises(QuotaExceeded):
        store("b")
    assert store("a")[0].is_replay, "a replay needs no quota"
    assert outputs[0] == first
    assert count(scratch_db) == [(1, 1)]


def test_statement_of_failed_rows_is_neither_stored_nor_charged(
    scratch_db: ScratchDatabase, database: Database
) -> None:
    quotas, who = QuotaManager(database, NO_LIMITS_SETTINGS), make_principal()
    access = database.connect_as(make_caller(who))

    def fail(results: Sequence[AppendResult]) -> None:
        assert results[0].receipt
        raise ZeroDivisionError

    batch = build_statement_events(who, [make_statement(FACT)])
    with pytest.raises(ZeroDivisionError):
        charge_and_store_statements(
            quotas, WorkQueue(""), access, batch, fail, time.monotonic() + 9
        )
    assert count(scratch_db) == [(0, 0)]


# the index of words ------------------------------------------------------------------------------


def test_statement_is_no_neighbour_of_message(
    scratch_db: ScratchDatabase, gateway: Gateway, database: Database
) -> None:
    key = gateway.key()

    def say(*texts: str) -> None:
        events = [
            {"participants": [ALICE, HELPER], "role": "user", "content": text} for text in texts
        ]
        append(gateway, key, events)

    say("one")
    state(database, [make_statement("stated two")])
    say("three")
    state(database, [make_statement("stated four"), make_statement("stated five")])
    say("six", "seven")
    rows = scratch_db.rows(
        "select e.content, b.content, s.words::text like '%%''state''%%' from event_search s"
        " join events e using (tenant_id, event_id)"
        " left join events b on b.tenant_id = s.tenant_id and b.event_id = s.cited_id"
        " order by e.seq"
    )
    assert rows == [
        ("one", None, False),
        ("stated two", None, True),
        ("three", "one", False),
        ("stated four", None, True),
        ("stated five", None, True),
        ("six", "three", False),
        ("seven", "six", False),
    ]


def test_statement_has_no_session(scratch_db: ScratchDatabase, database: Database) -> None:
    state(database, [make_statement(FACT)])
    with pytest.raises(Exception, match="events_statement_check"):
        scratch_db.rows("update events set session_id = 's-1'")


# folding -----------------------------------------------------------------------------------------


def talk(
    gateway: Gateway,
    database: Database,
    script: str,
    *who: str,
    after_each: Callable[[], object] | None = None,
) -> None:
    """An event for each letter, a minute apart: `h` of the harbour, `b` of bread, `a` the agent's;
    `|` is an hour; for each dot something is stated between them, by another clock."""
    key, at = gateway.key(), START
    waiting: list[dict[str, Any]] = []

    def tell() -> None:
        if waiting:
            append(gateway, key, waiting)
            waiting.clear()

    for n, letter in enumerate(script):
        if letter == ".":
            tell()
            statement = make_statement(f"{BREAD} {n}", *who, occurred_at=at + timedelta(hours=n))
            state(database, [statement])
        at += timedelta(hours=letter == "|", minutes=letter in "hba")
        if letter in "hba":
            event: dict[str, Any] = {
                "participants": list(who),
                "role": "agent" if letter == "a" else "user",
                "content": {"h": HARBOUR, "b": BREAD, "a": "aye"}[letter],
                "occurred_at": at.isoformat(),
            }
            waiting.append(event)
        if after_each:
            tell()
            after_each()
    tell()


def list_chains(base: ScratchDatabase, user: str) -> list[tuple[Any, ...]]:
    """Of each chain of a user how it ended, and its texts."""
    return base.rows(
        "select v.closed_by, array_agg(e.type || ' ' || e.content order by e.seq) from chains c"
        " join chain_versions v using (tenant_id, chain_id, version)"
        " join chain_events l using (tenant_id, chain_id)"
        " join events e on e.tenant_id = l.tenant_id and e.event_id = l.event_id"
        " where %s = any (c.participants) group by c.chain_id, v.closed_by order by min(e.seq)",
        user,
    )


def list_decisions(base: ScratchDatabase, user: str) -> list[tuple[Any, ...]]:
    """What the fold decided about which text. What the scripted model names rests on seqs."""
    return base.rows(
        "select e.type, e.content, d.kind, d.body - '{at,fold,place,joins,topic,entities}'::text[]"
        " from decisions d join events e using (tenant_id, event_id)"
        " where %s = any (d.participants) order by e.seq, d.kind",
        user,
    )


BOB = "user:bob"
SCRIPTS = (
    "hah.bab",
    ".hahbab.",
    "h.a.h.|.b.a.b",
    "hah|...b",
    "ha....hb....b",
    "....",
    "h.ahahahahahahahahahahahahahahahahaha.hahb",
)


@pytest.mark.parametrize(
    ("script", "in_pieces"),
    [
        *((script, False) for script in SCRIPTS),
        *((script, True) for script in SCRIPTS[:2]),
        *(pytest.param(script, True, marks=pytest.mark.proof) for script in SCRIPTS[2:]),
    ],
)
def test_statement_does_not_change_fold(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    database: Database,
    worker: WorkerResources,
    script: str,
    in_pieces: bool,
) -> None:
    fold = partial(process_due, worker)
    after_each = fold if in_pieces else None
    talk(gateway, database, script, ALICE, HELPER, after_each=after_each)
    talk(gateway, database, script.replace(".", ""), BOB, HELPER, after_each=after_each)
    fold()
    open_lanes = scratch_db.rows(
        "select l.participants, l.idle_at - e.recorded_at from lanes l join events e"
        " on e.scope_id = l.scope_id and e.seq = l.folded_seq and e.type <> 'statement'"
    )
    is_said = bool(set(script) - {"."})
    assert sorted(open_lanes) == [
        ([HELPER, user], timedelta(minutes=30)) for user in (ALICE, BOB) if is_said
    ]
    for _ in range(2):
        assert list_chains(scratch_db, ALICE) == list_chains(scratch_db, BOB)
        assert list_decisions(scratch_db, ALICE) == list_decisions(scratch_db, BOB)
        assert scratch_db.rows(
            "select count(*) from scopes where last_seq > least(folded_seq, max_folded_seq)"
        ) == [(0,)]
        assert close_idle_lanes(worker, "acme", LATER) in (0, 2)
    assert bool(list_chains(scratch_db, ALICE)) == is_said


def test_statement_flood_costs_lanes_nothing(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    database: Database,
    worker: WorkerResources,
    proof_size: Callable[[int], int],
) -> None:
    """Three thousand, or three batches of the fold."""
    size = max(600, proof_size(3000))
    talk(gateway, database, "hah", ALICE, HELPER)
    process_due(worker)
    before = (
        scratch_db.rows("select fold_no, folded_seq from scopes"),
        dump_state(scratch_db, "lanes", "decisions", "chains"),
    )
    for n in range(0, size, 300):
        state(database, [make_statement(f"{BREAD} {i}") for i in range(n, n + 300)])
    process_due(worker)
    ((fold_no, folded_seq),) = before[0]
    ((fold_no_after, *after),) = scratch_db.rows("select fold_no, folded_seq, last_seq from scopes")
    assert (folded_seq, after, fold_no_after > fold_no) == (3, [size + 3] * 2, True)
    assert dump_state(scratch_db, "lanes", "decisions", "chains") == before[1]
    talk(gateway, database, "hb", ALICE, HELPER)
    process_due(worker)
    assert close_idle_lanes(worker, "acme", LATER) == 1
    assert [(how, len(texts)) for how, texts in list_chains(scratch_db, ALICE)] == [
        ("break", 4),
        ("idle", 1),
    ]


def test_statement_does_not_keep_idle_lane_open(
    scratch_db: ScratchDatabase, gateway: Gateway, database: Database, worker: WorkerResources
) -> None:
    talk(gateway, database, "hah", ALICE, HELPER)
    process_due(worker)
    scratch_db.rows("update lanes set idle_at = now() - interval '1 second'")
    state(database, [make_statement(FACT)])
    process_due(worker)
    assert close_idle_lanes(worker, "acme", datetime.now(UTC)) == 1
    assert scratch_db.rows(
        "select e.type, d.at_seq from decisions d join events e using (tenant_id, event_id)"
        " where d.kind = 'idle'"
    ) == [("message", 4)]


@pytest.mark.proof
def test_statement_refold_gives_same_chains(
    scratch_db: ScratchDatabase, gateway: Gateway, database: Database, worker: WorkerResources
) -> None:
    talker, key = EventGenerator(seed=3), gateway.key()
    for _ in range(6):
        waiting: list[dict[str, Any]] = []
        for event in talker.generate(2, 25):
            waiting.append(event)
            if talker.rng.random() < 0.4:
                append(gateway, key, waiting)
                waiting.clear()
                texts = [f"{BREAD} {n}" for n in range(talker.rng.randrange(4))]
                state(database, [make_statement(t, *event["participants"]) for t in texts])
        if waiting:
            append(gateway, key, waiting)
        process_due(worker)
        close_idle_lanes(worker, "acme", LATER)
    before, chains = dump_state(scratch_db), hashes(scratch_db)
    assert len(chains) > 10
    query = "select count(*) from events where type = 'statement'"
    assert scratch_db.rows(query)[0][0] > 50
    assert scratch_db.rows(
        "select count(*) from chain_events join events using (tenant_id, event_id)"
        " where type = 'statement'"
    ) == [(0,)]
    scopes = [row[0] for row in scratch_db.rows("select scope_id from scopes")]
    for _ in range(2):
        drop_chains_of_scopes(database.connect_as(Caller.background("acme")), scopes)
        process_due(worker)
        assert hashes(scratch_db) == chains
        assert dump_state(scratch_db) == before


def test_statement_repeating_recall_is_no_echo_but_gives_one(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    database: Database,
    worker: WorkerResources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no evidence for a chain, so nothing is decided about it; what it says to anyone who
    recalled it is none either when it is said again."""
    key, fact = gateway.key(), "The red buoy at pier seven needs a new lamp before winter."
    state(database, [make_statement(fact)])
    process_due(worker)
    body = {"query": "What about the red buoy?", "participants": [ALICE], "min_relevance": 0}
    reply = gateway.call("POST", "/api/v1/recall", body, key=key)
    assert [hit["text"] for hit in reply.body["hits"]] == [fact]
    compared: list[int] = []

    def read_said(access: Any, event_ids: Sequence[UUID]) -> Any:
        compared.append(len(event_ids))
        return original(access, event_ids)

    original = fold_state.recall_echoes.read_event_texts
    monkeypatch.setattr(fold_state.recall_echoes, "read_event_texts", read_said)
    state(database, [make_statement(f"You told me: {fact}")])
    process_due(worker)
    assert compared == []
    event = {"participants": [ALICE, HELPER], "role": "user", "content": f"You told me: {fact}"}
    append(gateway, key, [event])
    state(database, [make_statement(f"You told me again: {fact}")])
    process_due(worker)
    assert compared == [1]
    assert scratch_db.rows(
        "select e.type from decisions d join events e using (tenant_id, event_id)"
        " where d.kind = 'echo'"
    ) == [("message",)]
