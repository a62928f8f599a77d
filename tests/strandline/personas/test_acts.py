"""Acts: one linear thread per sona, no matter who pushes, and a step seen where its memory is."""

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.strandline.personas.act_calls import ALICE, BOB, HELPER, SONAS, push
from tests.support import Gateway, Tell


@pytest.fixture
def key(gateway: Gateway) -> str:
    """Unbound: it speaks for all."""
    return gateway.key()


@pytest.fixture
def sona(gateway: Gateway, key: str) -> str:
    return gateway.call("POST", SONAS, {"name": "Harbour master"}, key=key).body["uuid"]


def stream(gateway: Gateway, key: str, sona: str, **query: Any) -> Any:
    query = {"participants": ALICE, **query}
    reply = gateway.call("GET", f"{SONAS}/{sona}/acts", key=key, query=query)
    assert reply.status == 200, reply.text
    return reply.body


def following(gateway: Gateway, key: str, sona: str, after: str | None = None) -> Any:
    query = {"participants": ALICE, **({"after": after} if after else {})}
    reply = gateway.call("GET", f"{SONAS}/{sona}/acts/next", key=key, query=query)
    assert reply.status == 200, reply.text
    return reply.body


def test_acts_push_of_act_too_late_names_head(
    gateway: Gateway, key: str, sona: str, tell: Tell
) -> None:
    events = [tell(key, f"Step {n}.", ALICE)["event_id"] for n in range(4)]
    acts: list[Any] = []
    for event in events[:3]:
        after = acts[-1]["act_id"] if acts else None
        reply = push(gateway, key, sona, event, after)
        assert reply.status == 201, reply.text
        assert (reply.body["previous_id"], reply.body["event_id"]) == (after, event)
        acts.append(reply.body)
    again = push(gateway, key, sona, events[1], acts[0]["act_id"])
    assert (again.status, again.body) == (201, acts[1])
    assert again.headers["Idempotent-Replayed"] == "true"
    for after in (None, acts[0]["act_id"], str(uuid.uuid4())):
        reply = push(gateway, key, sona, events[3], after)
        assert (reply.status, reply.error["details"]["head"]) == (409, acts[2]["act_id"])
    assert [act["act_id"] for act in stream(gateway, key, sona)["acts"]] == [
        act["act_id"] for act in acts
    ]
    assert following(gateway, key, sona)["act"] == acts[0]
    assert following(gateway, key, sona, acts[0]["act_id"])["act"] == acts[1]
    end = following(gateway, key, sona, acts[2]["act_id"])
    assert (end["act"], end["head"]) == (None, acts[2]["act_id"])
    gateway.sweep()
    place = gateway.call("GET", f"/sona/{sona}", key=key, query={"participants": ALICE}).body
    assert place["memories"] == 3, "the sona was active in what its acts are tied to"


def test_acts_push_refuses_event_out_of_view(
    gateway: Gateway, tell: Tell, key: str, sona: str
) -> None:
    bob = gateway.key(user=BOB)
    bobs = gateway.call("POST", SONAS, {"name": "Pilot"}, key=bob).body["uuid"]
    alices = tell(key, "Alice's alone.", ALICE)["event_id"]
    reply = push(gateway, bob, bobs, alices, None)
    assert (reply.status, reply.error["details"]["field"]) == (422, "event_id")
    assert push(gateway, bob, sona, alices, None).status == 404
    own = tell(bob, "Bob's.", BOB)["event_id"]
    assert push(gateway, bob, bobs, own, None).status == 201, "the refused push left no trace"


def test_acts_are_visible_where_their_event_is(
    gateway: Gateway, key: str, sona: str, tell: Tell
) -> None:
    """And all see one order, with the opaque id of the head."""
    head: str | None = None
    for n, who in enumerate(((ALICE,), (BOB,), (ALICE, BOB), (BOB,), (ALICE,))):
        event = tell(key, f"Step {n}.", *who)["event_id"]
        head = push(gateway, key, sona, event, head).body["act_id"]
    visible = {
        who: stream(gateway, key, sona, participants=who)["acts"] for who in (ALICE, BOB, HELPER)
    }
    assert [len(visible[who]) for who in (ALICE, BOB, HELPER)] == [3, 3, 0]
    both = [act["act_id"] for act in visible[ALICE] if act in visible[BOB]]
    assert len(both) == 1
    first = following(gateway, key, sona)
    assert (first["act"], first["head"]) == (visible[ALICE][0], head)
    assert following(gateway, key, sona, visible[ALICE][0]["act_id"])["act"] == visible[ALICE][1]
    act_id = next(act for act in visible[BOB] if act not in visible[ALICE])["act_id"]
    assert following(gateway, key, sona, act_id)["act"] is None


def test_acts_stream_continues_from_cursor(
    gateway: Gateway, key: str, sona: str, tell: Tell
) -> None:
    """Page by page, also after the steps that the reader does not see; and waits for the next."""
    head: str | None = None
    pushes: list[str] = []
    for n in range(5):
        event = tell(key, f"Step {n}.", ALICE if n % 2 == 0 else BOB)["event_id"]
        head = push(gateway, key, sona, event, head).body["act_id"]
        pushes.append(str(head))
    got: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(3):
        page = stream(gateway, key, sona, limit=1, **cursor)
        got += [act["act_id"] for act in page["acts"]]
        cursor = {"cursor": page["cursor"]}
    assert got == pushes[::2]
    start = time.monotonic()
    empty = stream(gateway, key, sona, wait=0.3, **cursor)
    assert (empty["acts"], time.monotonic() - start >= 0.3) == ([], True)
    event = tell(key, "The next step.", ALICE)["event_id"]
    timer = threading.Timer(0.3, push, (gateway, key, sona, event, head))
    timer.start()
    page = stream(gateway, key, sona, wait=10, cursor=empty["cursor"])
    timer.join()
    assert [act["event_id"] for act in page["acts"]] == [event]
    assert time.monotonic() - start < 8, "it answers when the step is there"


@pytest.mark.parametrize("field", ["cursor", "wait", "limit"])
def test_acts_stream_names_wrong_parameter(
    gateway: Gateway, key: str, sona: str, field: str
) -> None:
    other = gateway.call("POST", SONAS, {"name": "Gardener"}, key=key).body["uuid"]
    cursor = stream(gateway, key, other)["cursor"]
    value = {"cursor": cursor, "wait": "21", "limit": "0"}[field]
    path, query = f"{SONAS}/{sona}/acts", {"participants": ALICE, field: value}
    reply = gateway.call("GET", path, key=key, query=query)
    assert (reply.status, reply.error["details"]["field"]) == (
        400 if field == "cursor" else 422,
        field,
    )


def test_acts_thread_ends_when_sona_is_merged(
    gateway: Gateway, key: str, sona: str, tell: Tell
) -> None:
    other = gateway.call("POST", SONAS, {"name": "Gardener"}, key=key).body["uuid"]
    event = tell(key, "A step.", ALICE)["event_id"]
    act = push(gateway, key, other, event, None).body
    gateway.call("POST", f"{SONAS}/{other}/merge", {"into": sona}, key=key)
    reply = push(gateway, key, other, event, act["act_id"])
    assert (reply.status, reply.error["details"]["merged_into"]) == (409, sona)
    assert stream(gateway, key, other)["acts"] == [act]
    assert push(gateway, key, sona, event, None).status == 201


def test_acts_thread_never_forks_under_racing_pushes(
    gateway: Gateway, key: str, sona: str, tell: Tell, proof_size: Callable[[int], int]
) -> None:
    """Fifty at full size: each pushes its own memory until it wins, as a reader follows."""
    racers = max(8, proof_size(50))
    events = [tell(key, f"Racer {n}.", ALICE)["event_id"] for n in range(racers)]
    begin = threading.Barrier(racers + 2)
    conflicts: list[str] = []

    def race(event: str) -> str:
        begin.wait()
        head: str | None = None
        while True:
            reply = push(gateway, key, sona, event, head)
            if reply.status == 201:
                return reply.body["act_id"]
            assert reply.status == 409, reply.text
            conflicts.append(event)
            head = reply.error["details"]["head"]

    def follow(_: int) -> list[str]:
        begin.wait()
        got: list[str] = []
        cursor: dict[str, str] = {}
        while len(got) < racers:
            page = stream(gateway, key, sona, wait=5, limit=3, **cursor)
            got += [act["act_id"] for act in page["acts"]]
            cursor = {"cursor": page["cursor"]}
        return got

    with ThreadPoolExecutor(racers + 2) as pool:
        readers = [pool.submit(follow, n) for n in range(2)]
        won = list(pool.map(race, events))
        orders = [reader.result() for reader in readers]
    print(f"  {racers} racers, {len(conflicts)} pushes refused with the head")
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == sorted(won)
    acts = stream(gateway, key, sona, limit=500)["acts"]
    assert [act["previous_id"] for act in acts] == [None, *orders[0][:-1]]
    assert conflicts, "nobody met anybody"
