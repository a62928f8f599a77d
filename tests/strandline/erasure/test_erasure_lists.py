"""The list of erasures: whose they are, newest first, in pages that stay as they began."""

import uuid
from contextlib import closing
from typing import Any, Literal

import pytest

from strandline.db.database import Caller
from strandline.erasure import store_lists
from tests.query_plans import Explainer, nodes, rows_read
from tests.strandline.erasure.erasure_calls import (
    ALICE,
    BOB,
    CANARY,
    ERASURES,
    EVERYBODY,
    HELPER,
    MAY_ERASE,
    erase,
    forget,
)
from tests.support import Gateway, Reply, ScratchDatabase, Tell


def read(gateway: Gateway, key: str, **query: Any) -> Reply:
    return gateway.call("GET", ERASURES, key=key, query=query)


def list_ids(gateway: Gateway, key: str, **query: Any) -> list[str]:
    reply = read(gateway, key, **query)
    assert reply.status == 200, reply.text
    return [one["erasure_id"] for one in reply.body["erasures"]]


def test_erasure_list_shows_only_visible_erasures(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    alice = gateway.key(user=ALICE, rights=MAY_ERASE)
    bob = gateway.key(user=BOB, rights=MAY_ERASE)
    everyones = forget(gateway, tell, eraser)
    hers = forget(gateway, tell, alice)
    his = erase(gateway, bob, tell(bob, "Bob's.", BOB)["event_id"])["erasure_id"]
    reader, admin = gateway.key(), gateway.key(rights=["read", "admin"])

    assert list_ids(gateway, eraser) == [his, hers, everyones]
    assert list_ids(gateway, admin, everybody="true") == [his, hers, everyones]
    assert list_ids(gateway, alice) == [hers]
    assert list_ids(gateway, bob) == [his]
    assert list_ids(gateway, gateway.key(user="user:eve")) == []
    for key in (eraser, reader, admin):
        assert list_ids(gateway, key, participants=ALICE) == [hers]
    assert list_ids(gateway, reader, participants=HELPER) == []
    assert list_ids(gateway, alice, participants=BOB) == [], "of both at once"
    assert read(gateway, reader).status == 422, "on whose behalf?"
    assert read(gateway, gateway.key(rights=["erase"])).status == 403
    for tenant_key in (gateway.key("globex", rights=MAY_ERASE), gateway.key("globex", user=ALICE)):
        assert list_ids(gateway, tenant_key) == []
    for key in (eraser, alice, bob, admin):  # the list and the route of one agree
        query = {"everybody": "true"} if key == admin else {}
        for erasure_id in (everyones, hers, his):
            one = gateway.call("GET", f"{ERASURES}/{erasure_id}", key=key, query=query)
            assert (one.status == 200) == (erasure_id in list_ids(gateway, key, **query))


def test_erasure_list_pages_keep_first_page_state(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    first = [forget(gateway, tell, eraser) for _ in range(5)][::-1]
    page = read(gateway, eraser, limit=2).body
    erasure_ids, cursors = [one["erasure_id"] for one in page["erasures"]], list[str]()
    while page["next_cursor"]:
        forget(gateway, tell, eraser)
        cursors.append(page["next_cursor"])
        page = read(gateway, eraser, limit=2, cursor=cursors[-1]).body
        erasure_ids += [one["erasure_id"] for one in page["erasures"]]
    assert erasure_ids == first
    again = [read(gateway, eraser, limit=2, cursor=cursors[0]).text for _ in range(2)]
    assert again[0] == again[1]
    assert len(list_ids(gateway, eraser)) == 8 - (3 - len(cursors))


def test_erasure_list_pages_omit_late_commit(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    """Its id is older than the cursor's place, and it was not there when the list began."""
    old = forget(gateway, tell, eraser)
    for _ in range(2):
        forget(gateway, tell, eraser)
    page = read(gateway, eraser, limit=1).body
    late = str(uuid.UUID(int=uuid.UUID(old).int + 1))
    scratch_db.rows(
        "insert into erasures (tenant_id, erasure_id, participants, kind, target, asked_at,"
        " asked_by, hidden_at, due_at) select tenant_id, %s, participants, kind, target, asked_at,"
        " asked_by, hidden_at, due_at from erasures where erasure_id = %s",
        late,
        old,
    )
    assert late in list_ids(gateway, eraser)
    rest = list_ids(gateway, eraser, cursor=page["next_cursor"])
    assert (len(rest), late in rest) == (2, False)


def test_erasure_list_filters_by_state(gateway: Gateway, tell: Tell, eraser: str) -> None:
    erasure = forget(gateway, tell, eraser)
    gateway.run_job("eraser", "acme")
    waiting = forget(gateway, tell, eraser)
    assert list_ids(gateway, eraser, state="hidden") == [waiting]
    assert list_ids(gateway, eraser, state="complete") == [erasure]
    erasures = read(gateway, eraser).body["erasures"]
    assert [one["state"] for one in erasures] == ["hidden", "complete"]
    assert [one["vacuumed_at"] is None for one in erasures] == [True, False]
    assert erasures[1]["complete_at"] is not None


def test_erasure_list_holds_no_content_or_event_ids(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    """A page of erasures with a thousand ids each would not fit into an answer."""
    receipt = tell(eraser, f"The {CANARY} sails.", session_id=f"{CANARY}-1")
    more = tell(eraser, "Another.", session_id=f"{CANARY}-1")
    erase(gateway, eraser, receipt["event_id"])
    query = {"erase": "true"}
    session = gateway.call("DELETE", f"/api/v1/sessions/{CANARY}-1", key=eraser, query=query)
    assert session.status == 202
    gateway.run_job("eraser", "acme")
    text = read(gateway, eraser).text
    assert CANARY not in text
    assert [one in text for one in (receipt["event_id"], more["event_id"])] == [False, False]
    assert receipt["scope_id"] in text, "what a session's erasure names"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"limit": 0}, 422),
        ({"limit": 501}, 422),
        ({"limit": "many"}, 422),
        ({"state": "done"}, 422),
        ({"after": 1}, 422),
        ({"participants": "alice"}, 422),
        ({"cursor": "x"}, 400),
        ({"cursor": "x" * 5000}, 422),
    ],
)
def test_erasure_list_refuses_invalid_query(
    gateway: Gateway, eraser: str, query: dict[str, Any], status: int
) -> None:
    reply = read(gateway, eraser, **query)
    assert (reply.status, reply.error["details"]["field"]) == (status, next(iter(query)))


def test_erasure_list_cursor_is_bound_to_list_and_reader(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    alice = gateway.key(user=ALICE, rights=MAY_ERASE)
    for _ in range(2):
        forget(gateway, tell, alice)
        tell(eraser, "It stays.")
    cursor = read(gateway, eraser, limit=1).body["next_cursor"]
    page: dict[str, object] = {"limit": 1, **EVERYBODY}
    others = gateway.call("GET", "/memories/list", key=eraser, query={**page, "cursor": cursor})
    events = gateway.call("GET", "/memories/list", key=eraser, query=page).body
    replies = [
        read(gateway, alice, cursor=cursor),
        read(gateway, eraser, cursor=cursor, state="hidden"),
        read(gateway, eraser, cursor=cursor, participants=ALICE),
        read(gateway, gateway.key("globex", rights=MAY_ERASE), cursor=cursor),
        read(gateway, eraser, cursor=events["next_cursor"]),
        others,
    ]
    assert [reply.status for reply in replies] == [400] * len(replies)
    assert len(list_ids(gateway, eraser, cursor=cursor)) == 1


def test_erasure_list_and_receipts_survive_tenant_erasure(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    alice = gateway.key(user=ALICE, rights=MAY_ERASE)
    hers = forget(gateway, tell, alice)
    tell(eraser, "The rest.")
    whole = gateway.call("POST", ERASURES, {"tenant": True}, key=eraser).body["erasure_id"]
    for _ in range(2):  # at once, and when it is complete
        assert list_ids(gateway, eraser) == [whole, hers]
        assert list_ids(gateway, alice) == [hers]
        gateway.run_job("eraser", "acme")
    for key, erasure_id in ((eraser, whole), (alice, hers)):
        one = gateway.call("GET", f"{ERASURES}/{erasure_id}", key=key).body
        assert (one["state"], one["receipt"]["event_count"]) == ("complete", 1)


@pytest.mark.own_database
def test_erasure_list_of_user_reads_by_index(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    """Not by reading what others asked for. Teeth: without the index the list reads that."""
    alice = gateway.key(user=ALICE, rights=MAY_ERASE)
    forget(gateway, tell, alice)
    scratch_db.rows(
        "insert into erasures (tenant_id, erasure_id, participants, kind, target, asked_at,"
        " asked_by, hidden_at, cleared_at, completed_at, receipt, signature)"
        " select e.tenant_id, gen_random_uuid(), array['user:' || mod(n, 500)], e.kind, e.target,"
        " e.asked_at, e.asked_by, e.hidden_at, e.hidden_at, e.hidden_at, '{}', '' from erasures e,"
        " generate_series(1, 10000) n"
    )
    scratch_db.rows("vacuum analyze erasures")

    explanation = Explainer(scratch_db)
    access = explanation.database.connect_as(Caller("acme", (ALICE,), ALICE))

    def count_read(state: Literal["hidden"] | None = None) -> float:
        plans = explanation.plans(lambda: store_lists.list_newest_erasures(access, state, None, 50))
        assert plans, "nothing was explained"
        return sum(rows_read(node) for plan in plans for node in nodes(plan["Plan"]))

    with closing(explanation.database):
        assert count_read() < 10
        assert count_read("hidden") < 10
        scratch_db.rows("drop index erasures_asked, erasures_open")
        assert count_read() > 1000
        assert count_read("hidden") > 1000
