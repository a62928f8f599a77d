"""Promise: a retry never makes a second event, and is answered with the first answer's bytes;
through the real handlers, with 20 callers at once."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest

from functions.ingest import handler as ingest
from strandline.aws.work_queue import WorkQueue
from strandline.config import get_settings
from strandline.embeddings.embedder import Embedder
from strandline.local.aws import LocalAws
from tests.support import KEY_SECRET, Gateway, Reply, ScratchDatabase, user_message, wire_handlers

KEYS, CALLERS = 100, 20
EVENTS = "/api/v1/events"


def race[Answer](
    pool: ThreadPoolExecutor, rounds: int, call: Callable[[int, int], Answer]
) -> list[list[Answer]]:
    """`call(round, caller)` by all callers at once, round by round; the answers of each round."""
    gate = threading.Barrier(CALLERS, timeout=60)

    def caller(number: int) -> list[Answer]:
        answers: list[Answer] = []
        for rnd in range(rounds):
            gate.wait()
            answers.append(call(rnd, number))
        return answers

    by_caller = [pool.submit(caller, number) for number in range(CALLERS)]
    return [
        list(answers) for answers in zip(*(result.result() for result in by_caller), strict=True)
    ]


@pytest.fixture
def callers(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadPoolExecutor]:
    """Threads that have a connection each, so that a race begins at once; no quota in the way."""
    monkeypatch.setenv("STRANDLINE_TENANT_REQUESTS_PER_MINUTE", str(10**9))
    get_settings.cache_clear()
    key, turn = gateway.key("elsewhere", "user:warm"), threading.Lock()
    gate = threading.Barrier(CALLERS, timeout=60)

    def warm(_: int) -> int:
        with turn:
            status = gateway.call("POST", EVENTS, user_message("warm", "user:warm"), key=key).status
        gate.wait()
        return status

    with ThreadPoolExecutor(CALLERS) as pool:
        assert set(pool.map(warm, range(CALLERS))) == {201}
        yield pool


def append_keyed(gateway: Gateway, token: str, name: str, body: object) -> Reply:
    return gateway.call("POST", EVENTS, body, key=token, headers={"Idempotency-Key": name})


def event_rows(base: ScratchDatabase, tenant: str = "acme") -> list[tuple[Any, ...]]:
    return base.rows(
        "select event_id::text, content, seq from events where tenant_id = %s"
        " order by recorded_at, seq",
        tenant,
    )


def test_idempotency_key_of_twenty_callers_makes_one_event(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    callers: ThreadPoolExecutor,
    proof_size: Callable[[int], int],
) -> None:
    """100 keys x 20 identical calls at once: 100 events, and of each key 20 equal 201s of which 19
    say that they are replays."""
    size, token, started = proof_size(KEYS), gateway.key(user="user:alice"), time.monotonic()
    rounds = race(
        callers,
        size,
        lambda rnd, _: append_keyed(
            gateway, token, f"k{rnd}", user_message(f"Buoy {rnd}.", session_id="s")
        ),
    )
    seconds = time.monotonic() - started
    assert {reply.status for replies in rounds for reply in replies} == {201}
    for replies in rounds:
        assert len({reply.text for reply in replies}) == 1
        marks = Counter(reply.headers.get("Idempotent-Replayed") for reply in replies)
        assert marks == {"true": CALLERS - 1, None: 1}
    results = {event_id: (content, seq) for event_id, content, seq in event_rows(scratch_db)}
    assert len(results) == size
    for rnd, (first, *_) in enumerate(rounds):
        assert results[first.body["event_id"]] == (f"Buoy {rnd}.", first.body["seq"])
    print(f"\n{size} keys x {CALLERS} callers: {len(results)} events in {seconds:.1f} s")


def test_idempotency_key_of_batch_makes_events_once(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    callers: ThreadPoolExecutor,
    proof_size: Callable[[int], int],
) -> None:
    """The same of batches, whose items have the key and their place."""
    size, token = proof_size(KEYS) // 5, gateway.key()

    def call(rnd: int, _: int) -> Reply:
        events = [user_message(f"{rnd}: {n}", f"user:u{n % 3}") for n in range(5)]
        headers = {"Idempotency-Key": f"b{rnd}"}
        return gateway.call(
            "POST", f"{EVENTS}/batch", {"events": events}, key=token, headers=headers
        )

    for replies in race(callers, size, call):
        assert {reply.status for reply in replies} == {200}
        assert {reply.body["stored"] for reply in replies} == {5}
        assert len({reply.text for reply in replies}) == 1
        marks = Counter(reply.headers.get("Idempotent-Replayed") for reply in replies)
        assert marks == {"true": CALLERS - 1, None: 1}
    assert len(event_rows(scratch_db)) == 5 * size


def test_idempotency_key_race_has_one_winner(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    callers: ThreadPoolExecutor,
    proof_size: Callable[[int], int],
) -> None:
    """The others are conflicts that name the winner and what differs; none is dropped silently."""
    size, token = proof_size(KEYS), gateway.key(user="user:alice")
    rounds = race(
        callers,
        size,
        lambda rnd, n: append_keyed(gateway, token, f"k{rnd}", user_message(f"{rnd} by {n}")),
    )
    for replies in rounds:
        assert Counter(reply.status for reply in replies) == {201: 1, 409: CALLERS - 1}
        (winner,) = (reply.body["event_id"] for reply in replies if reply.status == 201)
        for reply in replies:
            if reply.status == 409:
                assert reply.error["code"] == "key_conflict"
                assert reply.error["details"] == {"fields": ["content"], "event_id": winner}
    assert len(event_rows(scratch_db)) == size


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"content": "Other."}, ["content"]),
        ({"metadata": {"n": 2}}, ["metadata"]),
        ({"participants": ["user:alice"]}, ["participants", "speaker"]),
        ({"session_id": "t"}, ["session_id"]),
        ({"type": "thought"}, ["type"]),
        ({"occurred_at": "2026-05-08T13:56:01Z"}, ["occurred_at"]),
        ({"name": "b.txt", "mime_type": "text/markdown"}, ["mime_type", "name"]),
        ({"content": "x" * 70_000}, ["content"]),
    ],
)
def test_idempotency_key_conflict_says_what_differs(
    gateway: Gateway, scratch_db: ScratchDatabase, change: dict[str, object], fields: list[str]
) -> None:
    first = user_message(
        "The buoy is out.",
        "user:alice",
        "user:bob",
        session_id="s",
        occurred_at="2026-05-08T13:56:00Z",
        metadata={"n": 1},
        name="a.txt",
    )
    token = gateway.key()
    event_id = append_keyed(gateway, token, "k", first).body["event_id"]
    reply = append_keyed(gateway, token, "k", {**first, **change})
    assert reply.status == 409
    assert reply.error["retryable"] is False
    assert set(reply.error["details"]["fields"]) == set(fields)
    assert reply.error["details"]["event_id"] == event_id
    assert len(event_rows(scratch_db)) == 1
    again = append_keyed(gateway, token, "k", first)
    assert (again.status, again.headers["Idempotent-Replayed"]) == (201, "true")


def shape(reply: Reply) -> object:
    """All of an answer but its values."""
    return reply.status, sorted(reply.headers), {n: type(v).__name__ for n, v in reply.body.items()}


def test_idempotency_keys_of_users_are_separate(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """The same key of another bound user is fresh, in every respect; so is that of an unbound
    credential, and of another tenant."""
    both = ["user:alice", "user:bob"]
    alices = append_keyed(
        gateway, gateway.key(user="user:alice"), "k", user_message("Mine.", *both)
    )
    bob = gateway.key(user="user:bob")
    others = [
        append_keyed(gateway, bob, "k", user_message("Mine.", *both, speaker="user:bob")),
        append_keyed(gateway, gateway.key(), "k", user_message("Mine.", *both)),
        append_keyed(gateway, gateway.key("other"), "k", user_message("Mine.", *both)),
    ]
    unused = append_keyed(
        gateway, bob, "never used", user_message("New.", *both, speaker="user:bob")
    )
    assert alices.status == 201
    assert [shape(other) for other in others] == [shape(unused)] * 3
    assert len({reply.body["event_id"] for reply in [alices, *others, unused]}) == 5
    assert "Idempotent-Replayed" not in unused.headers
    response = append_keyed(gateway, bob, "k", user_message("Else.", *both, speaker="user:bob"))
    assert response.status == 409
    assert response.error["details"]["event_id"] == others[0].body["event_id"]
    assert alices.body["event_id"] not in response.text
    assert len(event_rows(scratch_db)) == 4


def test_idempotency_key_conflict_hides_unseen_event(gateway: Gateway) -> None:
    """Unbound credentials share their keys: one that names others learns that the key is taken, and
    not by what."""
    first = append_keyed(gateway, gateway.key(), "k", user_message("Secret.", "user:alice"))
    reply = append_keyed(gateway, gateway.key(), "k", user_message("Secret.", "user:mallory"))
    assert reply.status == 409
    assert reply.error["details"] == {}
    assert first.body["event_id"] not in reply.text
    assert "participants" not in reply.text


def test_idempotency_key_header_equals_source_event_key(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    token = gateway.key()
    first = append_keyed(gateway, token, "k", user_message("Once."))
    same = gateway.call("POST", EVENTS, user_message("Once.", source_event_key="k"), key=token)
    other = gateway.call(
        "POST", EVENTS, user_message("Once.", source_event_key="k", channel="mail"), key=token
    )
    assert (same.status, same.text) == (201, first.text)
    assert other.status == 201
    assert len(event_rows(scratch_db)) == 2


class Death(BaseException):
    """No handler catches it: the process is gone."""


def test_idempotency_key_retry_after_commit_gets_receipt(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    aws: LocalAws,
    embedder: Embedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message is sent right after the commit: one who dies there answered nothing."""

    def die(*_: object) -> None:
        raise Death

    token, body = gateway.key(), user_message("The buoy is out.")
    with monkeypatch.context() as patch:
        patch.setattr(WorkQueue, "send", die)
        with pytest.raises(Death):
            append_keyed(gateway, token, "k", body)
    ((event_id, _, seq),) = event_rows(scratch_db)
    dead = ingest.resources
    environment = {
        "STRANDLINE_DATABASE_URL": scratch_db.url,
        "STRANDLINE_BUCKET": aws.bucket,
        "STRANDLINE_KEY_SECRET": KEY_SECRET,
    }
    with ExitStack() as stack:
        for service in wire_handlers(environment, monkeypatch, embedder):
            stack.enter_context(closing(service.database))
        assert ingest.resources is not dead
        replies = [append_keyed(gateway, token, "k", body) for _ in range(2)]
    for reply in replies:
        assert (reply.status, reply.headers["Idempotent-Replayed"]) == (201, "true")
        assert (reply.body["event_id"], reply.body["seq"]) == (event_id, seq)
    assert replies[0].text == replies[1].text
    assert len(event_rows(scratch_db)) == 1


def test_idempotency_test_detects_check_then_insert(
    scratch_db: ScratchDatabase, proof_size: Callable[[int], int]
) -> None:
    """The planted fault: select the key, insert if it is absent. Under the same race it must make
    doubles, and the primary key of ours none, or the race above proves nothing."""
    size = proof_size(KEYS)
    with psycopg.connect(scratch_db.owner_url, autocommit=True) as owner:
        owner.execute("create table checked (key int not null)")
        owner.execute("create table reserved (key int primary key)")
    with ExitStack() as stack:
        own = [
            stack.enter_context(psycopg.connect(scratch_db.owner_url, autocommit=True))
            for _ in range(CALLERS)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(CALLERS))

        def check_then_insert(key: int, caller: int) -> None:
            if own[caller].execute("select from checked where key = %s", (key,)).fetchone() is None:
                own[caller].execute("insert into checked values (%s)", (key,))

        def reserve(key: int, caller: int) -> None:
            own[caller].execute("insert into reserved values (%s) on conflict do nothing", (key,))

        race(pool, size, check_then_insert)
        race(pool, size, reserve)
    doubles = scratch_db.rows("select count(*) - count(distinct key) from checked")[0][0]
    print(f"\n{size} keys x {CALLERS} callers, check-then-insert: {doubles} doubles")
    assert doubles > 0
    assert _column(scratch_db.rows("select key from reserved order by key")) == list(range(size))


def _column(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [row[0] for row in rows]
