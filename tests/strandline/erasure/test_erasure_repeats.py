"""An erasure whose answer was lost: what repeats its request finds it, and erases nothing else."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.strandline.erasure.erasure_calls import ALICE, BOB, ERASURES, HELPER, erase
from tests.support import Gateway, Reply, ScratchDatabase, Tell

REPLAY_HEADER = "Idempotent-Replayed"
SESSION = "/api/v1/sessions/harbour"


def post(gateway: Gateway, key: str, name: str | None, **selector: Any) -> Reply:
    headers = {} if name is None else {"Idempotency-Key": name}
    return gateway.call("POST", ERASURES, selector, key=key, headers=headers)


def test_erasure_repeat_with_key_gives_first_erasure(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    tell(eraser, "Forget me.")
    first = post(gateway, eraser, "one", participant=ALICE)
    later = tell(eraser, "Said later.")
    again = post(gateway, eraser, "one", participant=ALICE)
    assert (first.status, again.status) == (202, 202)
    assert again.body["erasure_id"] == first.body["erasure_id"]
    assert (first.headers.get(REPLAY_HEADER), again.headers.get(REPLAY_HEADER)) == (None, "true")
    path = f"/api/v1/events/{later['event_id']}"
    assert gateway.call("GET", path, key=eraser, query={"participants": ALICE}).status == 200
    other = post(gateway, eraser, "one", participant=BOB)
    assert (other.status, other.error["code"]) == (409, "key_conflict")
    assert post(gateway, eraser, "one", participant=ALICE, dry_run=True).body["events"] == 1
    alice = gateway.key(user=ALICE, rights=["read", "erase"])
    assert post(gateway, alice, "one", participant=ALICE).body["counts"]["events"] == 1
    rows = scratch_db.rows("select count(*) from erasures where strpos(erasures::text, 'one') > 0")
    assert rows == [(0,)], "a key may say something"


def test_erasure_repeat_race_with_one_key_erases_once(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    for n in range(3):
        tell(eraser, f"Forget {n}.")

    def ask(_: int) -> Reply:
        return post(gateway, eraser, "one", participant=ALICE)

    with ThreadPoolExecutor(4) as threads:
        replies = list(threads.map(ask, range(4)))
    assert {reply.status for reply in replies} == {202}
    assert len({reply.body["erasure_id"] for reply in replies}) == 1
    assert scratch_db.rows("select count(*) from erasures") == [(1,)]


def test_erasure_repeat_of_event_names_erasure_to_its_readers(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    event_ids = [
        tell(eraser, f"Said {n}.", ALICE, BOB, speaker=ALICE)["event_id"] for n in range(2)
    ]
    alice = gateway.key(user=ALICE, rights=["read", "erase"])
    erasure = post(gateway, alice, None, event_ids=event_ids).body["erasure_id"]
    for key in (alice, eraser):
        reply = post(gateway, key, None, event_ids=event_ids)
        assert (reply.status, reply.error["details"]["erasure_ids"]) == (410, [erasure])
        assert f"GET {ERASURES}/{erasure}" in reply.error["message"]
        assert erase(gateway, key, event_ids[0])["erasure_id"] == erasure
    bob = gateway.key(user=BOB, rights=["read", "erase"])
    reply = post(gateway, bob, None, event_ids=event_ids)
    assert (reply.status, reply.error["details"]["erasure_ids"]) == (410, [])


def test_erasure_repeat_of_session_gives_its_erasure(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    def delete(key: str, name: str = SESSION) -> Reply:
        return gateway.call("DELETE", name, key=key, query={"erase": "true"})

    for speaker in (ALICE, BOB):
        tell(eraser, "Said here.", ALICE, BOB, speaker=speaker, session_id="harbour")
    alice = gateway.key(user=ALICE, rights=["read", "write", "erase"])
    hers = delete(alice)
    assert hers.body["counts"]["events"] == 1
    assert delete(alice).body["erasure_id"] == hers.body["erasure_id"], "what bob said is left"
    first = delete(eraser)
    again = delete(eraser)
    assert (again.status, again.headers[REPLAY_HEADER]) == (202, "true")
    assert again.body["erasure_id"] == first.body["erasure_id"]
    assert delete(alice).body["erasure_id"] == hers.body["erasure_id"]
    assert delete(gateway.key(user=BOB, rights=["write", "erase"])).status == 404
    assert delete(gateway.key("globex", rights=["write", "erase"])).status == 404
    assert delete(eraser, "/api/v1/sessions/another").status == 404
    tell(eraser, "Begun again.", ALICE, BOB, session_id="harbour")
    assert delete(eraser).body["erasure_id"] != first.body["erasure_id"]


def test_erasure_by_user_reaches_agent_events_of_own_key(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    alice = gateway.key(user=ALICE, rights=["read", "write", "erase"])
    bob = gateway.key(user=BOB, rights=["read", "write", "erase"])
    who = (ALICE, BOB, HELPER)
    message: dict[str, str] = {}
    for name, key in (("alice", alice), ("bob", bob), ("nobody", eraser)):
        reply = tell(key, "You said zyxcanary.", *who, role="agent", speaker=HELPER)
        message[name] = reply["event_id"]

    def delete(key: str, name: str) -> int:
        return gateway.call("DELETE", f"/api/v1/events/{message[name]}", key=key).status

    assert [delete(alice, name) for name in ("bob", "nobody")] == [403, 403]
    assert post(gateway, alice, None, event_ids=[*message.values()]).status == 403
    assert post(gateway, alice, None, event_ids=[message["alice"]]).body["counts"]["events"] == 1
    assert delete(bob, "bob") == 200


def test_erasure_by_user_of_session_spares_agent_events(gateway: Gateway, tell: Tell) -> None:
    alice = gateway.key(user=ALICE, rights=["read", "write", "erase"])
    for text, more in (("Mine.", {}), ("Yours: mine.", {"role": "agent", "speaker": HELPER})):
        reply = tell(alice, text, ALICE, HELPER, session_id="harbour", **more)
    answer = gateway.call("DELETE", SESSION, key=alice, query={"erase": "true"}).body
    assert answer["counts"]["events"] == 1
    reply = gateway.call("GET", f"/api/v1/events/{reply['event_id']}", key=alice)
    assert reply.body["content"] == "Yours: mine."
