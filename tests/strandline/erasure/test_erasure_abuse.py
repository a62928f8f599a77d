"""What nobody should get out of erasure: absurd selectors, others' words, forged receipts."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from strandline.commands.main import main
from strandline.erasure import receipts
from strandline.local.aws import LocalAws
from tests.strandline.erasure.erasure_calls import (
    ALICE,
    BOB,
    ERASURES,
    EVERYBODY,
    HELPER,
    MAY_ERASE,
    erase,
    forget,
)
from tests.support import Gateway, Reply, ScratchDatabase, Tell
from tests.uploads import cid_of, citing, objects, upload_file

NOBODY = str(uuid.uuid4())


def post(gateway: Gateway, key: str, name: str | None = None, **selector: Any) -> Reply:
    headers = {} if name is None else {"Idempotency-Key": name}
    return gateway.call("POST", ERASURES, selector, key=key, headers=headers)


@pytest.mark.parametrize(
    "selector",
    [
        {"event_ids": [str(uuid.uuid4()) for _ in range(1001)]},
        {"event_ids": ["not an id"]},
        {"event_ids": [None]},
        {"event_ids": NOBODY},
        {"event_ids": [NOBODY], "scope_id": NOBODY},
        {"event_ids": [NOBODY], "session_id": "s"},
        {"tenant": True, "scope_id": NOBODY},
        {"tenant": "true"},
        {"tenant": 1},
        {"tenant": "acme"},
        {"session_id": ""},
        {"session_id": "a\x00b"},
        {"session_id": "s" * 129},
        {"session_id": "s", "participant": ALICE},
        {"participant": "user:al\x00ice"},
        {"participant": "alice"},
        {"participant": "user:"},
        {"participant": ""},
        {"participant": "user:" + "a" * 5000},
        {"participant": [ALICE]},
        {"scope_id": "not an id"},
        {"scope_id": None},
        {"events": [NOBODY]},
        {"participant": ALICE, "dry_run": "yes"},
        {"participant": ALICE, "force": True},
        {"user_id": "alice"},
    ],
)
def test_erasure_refuses_absurd_selector(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str, selector: Any
) -> None:
    tell(eraser, "It stays.")
    for more in ({}, {"dry_run": True}):
        body: dict[str, Any] = {**more, **selector}
        reply = gateway.call("POST", ERASURES, body, key=eraser)
        assert (reply.status, reply.error["code"]) == (422, "invalid_field"), reply.text
        assert reply.error["details"]["field"]
    assert scratch_db.rows("select count(*) from erasures") == [(0,)]


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{", b'{"tenant":true,"tenant":true}'])
def test_erasure_refuses_malformed_body(gateway: Gateway, eraser: str, raw: bytes) -> None:
    reply = gateway.call("POST", ERASURES, key=eraser, raw=raw)
    assert reply.status in (400, 422), reply.text


def test_erasure_takes_repeated_id_once(gateway: Gateway, tell: Tell, eraser: str) -> None:
    event_id = tell(eraser, "Forget me.")["event_id"]
    ids = [event_id, event_id.upper(), event_id.replace("-", "")]
    assert post(gateway, eraser, event_ids=ids, dry_run=True).body["events"] == 1
    reply = post(gateway, eraser, event_ids=ids)
    assert (reply.body["counts"]["events"], reply.body["target"]) == (1, {"event_ids": [event_id]})
    gateway.run_job("eraser", "acme")
    path = f"{ERASURES}/{reply.body['erasure_id']}"
    receipt = gateway.call("GET", path, key=eraser).body["receipt"]
    assert (receipt["event_count"], receipt["event_ids"]) == (1, [event_id])


@pytest.mark.parametrize("name", [" user:Josè ", "user:Jose\u0300"])
def test_erasure_normalizes_participant_name(
    gateway: Gateway, tell: Tell, eraser: str, name: str
) -> None:
    """As for an append: trimmed, and composed."""
    tell(eraser, "Forget me.", "user:Jose\u0300")
    own = gateway.key(user="user:Josè", rights=MAY_ERASE)
    assert post(gateway, own, participant=name, dry_run=True).body["events"] == 1
    reply = post(gateway, eraser, participant=name)
    assert (reply.status, reply.body["counts"]["events"]) == (202, 1)
    assert reply.body["target"] == {"participant": "user:Josè"}


def test_erasure_by_bound_user_reaches_only_own_events(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    """By no selector, and a dry run says no more than an erasure."""
    alice = gateway.key(user=ALICE, rights=MAY_ERASE)
    shared = tell(eraser, "Bob's, and alice listens.", ALICE, BOB, speaker=BOB, session_id="both")
    receipt = tell(eraser, "Bob alone.", BOB, speaker=BOB, session_id="bobs")
    own = tell(eraser, "Alice's.", ALICE, BOB, speaker=ALICE)
    foreign_key = gateway.key("globex", rights=MAY_ERASE)
    foreign = tell(foreign_key, "Elsewhere.", ALICE, session_id="elsewhere")
    cases: list[tuple[dict[str, Any], int]] = [
        ({"event_ids": [shared["event_id"]]}, 403),
        ({"event_ids": [own["event_id"], shared["event_id"]]}, 403),
        ({"event_ids": [own["event_id"], receipt["event_id"]]}, 404),
        ({"event_ids": [receipt["event_id"]]}, 404),
        ({"event_ids": [foreign["event_id"]]}, 404),
        ({"event_ids": [NOBODY]}, 404),
        ({"participant": BOB}, 403),
        ({"participant": BOB, "scope_id": shared["scope_id"]}, 403),
        ({"participant": HELPER}, 403),
        ({"scope_id": shared["scope_id"]}, 403),
        ({"scope_id": receipt["scope_id"]}, 403),
        ({"scope_id": NOBODY}, 403),
        ({"tenant": True}, 403),
        ({"session_id": "both"}, 404),
        ({"session_id": "bobs"}, 404),
        ({"session_id": "elsewhere"}, 404),
        ({"session_id": "bobs", "scope_id": receipt["scope_id"]}, 404),
        ({"participant": ALICE, "scope_id": receipt["scope_id"]}, 404),
        ({"participant": ALICE, "scope_id": foreign["scope_id"]}, 404),
    ]
    for selector, status in cases:
        reply = post(gateway, alice, **selector)
        assert reply.status == status, (selector, reply.text)
        response = post(gateway, alice, dry_run=True, **selector)
        if "event_ids" in selector or status == 403:
            assert response.status == status, (selector, response.text)
        else:
            assert (response.status, set(response.body.values())) == (200, {0}), selector
    for path in ("both", "bobs", "elsewhere"):
        query = {"erase": "true"}
        reply = gateway.call("DELETE", f"/api/v1/sessions/{path}", key=alice, query=query)
        assert reply.status == 404, reply.text
    assert scratch_db.rows("select count(*) from erasures") == [(0,)]
    assert scratch_db.rows("select count(*) from events where erased_at is not null") == [(0,)]


def test_erasure_dry_run_counts_events_caller_would_erase(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    for speaker in (ALICE, BOB):
        tell(eraser, f"{speaker} here", ALICE, BOB, speaker=speaker, session_id="s")
        tell(eraser, f"{speaker} alone", speaker, speaker=speaker)
    alice = gateway.key(user=ALICE, rights=MAY_ERASE)
    body = post(gateway, alice, participant=ALICE, dry_run=True).body
    assert (body["events"], body["scopes"]) == (2, 2)
    assert post(gateway, alice, session_id="s", dry_run=True).body["events"] == 1
    assert post(gateway, eraser, session_id="s", dry_run=True).body["events"] == 2
    assert post(gateway, eraser, tenant=True, dry_run=True).body["events"] == 4


def test_erasure_key_stands_for_one_request(gateway: Gateway, tell: Tell, eraser: str) -> None:
    """Whatever differs is a conflict and erases nothing; two users' keys are two keys."""
    receipt = tell(eraser, "One.", ALICE, speaker=ALICE)
    message = tell(eraser, "Two.", ALICE, speaker=ALICE, session_id="s")
    first = post(gateway, eraser, "k", event_ids=[receipt["event_id"]])
    for selector in (
        {"event_ids": [message["event_id"]]},
        {"event_ids": [receipt["event_id"], message["event_id"]]},
        {"session_id": "s"},
        {"participant": ALICE},
        {"scope_id": message["scope_id"]},
        {"tenant": True},
    ):
        reply = post(gateway, eraser, "k", **selector)
        assert (reply.status, reply.error["code"]) == (409, "key_conflict"), selector
    again = post(gateway, eraser, "k", event_ids=[receipt["event_id"]])
    assert again.body["erasure_id"] == first.body["erasure_id"]
    path = f"/api/v1/events/{message['event_id']}"
    event = gateway.call("GET", path, key=eraser, query=EVERYBODY)
    assert event.status == 200
    assert post(gateway, gateway.key("globex", rights=MAY_ERASE), "k", tenant=True).status == 404
    for name in ("", "k" * 600, "k\u00e9"):
        assert post(gateway, eraser, name, participant=ALICE).status in (400, 422), name


def test_erasure_keeps_event_key_gone_for_any_body(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    message: dict[str, Any] = {"source_event_key": "k", "channel": "mail", "session_id": "s"}
    erase(gateway, eraser, tell(eraser, "Forget me.", **message)["event_id"])
    bodies = [
        {"content": "Forget me."},
        {"content": "Something else."},
        {"content": "Forget me.", "participants": [BOB]},
        {"content": "Forget me.", "session_id": "another"},
    ]
    for body in bodies:
        fields = {"participants": [ALICE, HELPER], "role": "user", **message, **body}
        reply = gateway.call("POST", "/api/v1/events", fields, key=eraser)
        assert (reply.status, reply.error["code"]) == (410, "gone"), body
    assert tell(eraser, "Another channel.", **{**message, "channel": "chat"})["seq"]
    assert scratch_db.rows("select count(*) from events where erased_at is null") == [(1,)]


def test_erasure_feed_of_hidden_scope_equals_unknown_scope(
    gateway: Gateway, tell: Tell, eraser: str
) -> None:
    receipt = tell(eraser, "Bob alone.", BOB, speaker=BOB)
    erase(gateway, eraser, receipt["event_id"])
    readers = [gateway.key(user=ALICE), gateway.key("globex", rights=MAY_ERASE)]
    for key in readers:
        query = {"participants": ALICE}
        answers = [
            gateway.call("GET", f"/api/v1/scopes/{scope}/erasures", key=key, query=query)
            for scope in (receipt["scope_id"], NOBODY)
        ]
        assert [reply.status for reply in answers] == [404, 404]
        said_of = [{**reply.error, "request_id": ""} for reply in answers]
        assert said_of[0] == said_of[1]


def forgeries(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, dict):
        return {**cast("dict[str, object]", value), "more": 1}
    if isinstance(value, list):
        return [*cast("list[object]", value), "more"]
    if isinstance(value, int):
        return value + 1
    return f"{value}0"


def test_erasure_receipt_forged_in_any_field_is_invalid(
    gateway: Gateway, tell: Tell, eraser: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    erasure_id = forget(gateway, tell, eraser)
    gateway.run_job("eraser", "acme")
    body = gateway.call("GET", f"{ERASURES}/{erasure_id}", key=eraser).body
    receipt, signature, key = body["receipt"], body["signature"], body["public_key"]
    assert receipts.verify_receipt(key, receipt, signature)
    for name, value in receipt.items():
        for forged in (
            {**receipt, name: forgeries(value)},
            {**receipt, name: None} if value is not None else {**receipt, name: ""},
            {n: v for n, v in receipt.items() if n != name},
        ):
            assert not receipts.verify_receipt(key, forged, signature), name
    assert not receipts.verify_receipt(key, {**receipt, "more": None}, signature)
    for bad_value in ("", "00", signature[:-2], signature + "00", "x" * 128, signature[::-1]):
        assert not receipts.verify_receipt(key, receipt, bad_value), bad_value

    file = tmp_path / "receipt.json"

    def check(text: str, *more: str) -> tuple[int, str]:
        file.write_text(text)
        code = main(["operate", "receipt", str(file), *more])
        return code, "".join(capsys.readouterr())

    own = receipts.derive_public_key("a forger's own secret")
    resigned = {
        **body,
        "receipt": {**receipt, "event_count": 9},
        "signature": receipts.sign_receipt("a forger's own secret", {**receipt, "event_count": 9}),
        "public_key": own,
    }
    assert check(json.dumps(resigned))[0] == 1, "the answer's own key proves nothing"
    assert check(json.dumps(resigned), "--public-key", key)[0] == 1
    twice = json.dumps(body).replace('"event_count": 1', '"event_count": 9, "event_count": 1')
    assert twice != json.dumps(body)
    assert check(twice)[0] == 1, "another reader takes the first"
    for text in (
        "",
        "null",
        "[]",
        "{",
        json.dumps({**body, "receipt": []}),
        json.dumps({**body, "signature": 1}),
        json.dumps({**body, "signature": None}),
        json.dumps({"receipt": receipt}),
        json.dumps({"signature": signature}),
        "[" * 5000,
        "\xff",
    ):
        code, message = check(text)
        assert (code, "Traceback" in message) == (1, False), (text, message)
    assert check(json.dumps(body), "--public-key", "not hex")[0] == 1


def test_erasure_removes_uncited_upload_with_its_uploader(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, tell: Tell, eraser: str
) -> None:
    """By the same rule for everybody: a bound user's own, a user's whom somebody may erase, all of
    the tenant. Anyone who erases less leaves it."""
    alice, bob = (gateway.key(user=one, rights=MAY_ERASE) for one in (ALICE, BOB))

    def upload(key: str, word: str) -> None:
        upload_file(gateway, key, word.encode(), mime_type="text/plain", name=f"{word}.txt")

    def list_left() -> list[str]:
        rows = scratch_db.rows("select file_name from uploads where tenant_id = 'acme' order by 1")
        return [name.removesuffix(".txt") for (name,) in rows]

    for key, word in ((alice, "alices"), (bob, "bobs"), (eraser, "nobodys")):
        upload(key, word)
    foreign = gateway.key("globex", rights=MAY_ERASE)
    upload(foreign, "elsewhere")
    receipt = tell(eraser, "A word.", ALICE, BOB, speaker=ALICE)
    assert post(gateway, alice, participant=ALICE, scope_id=receipt["scope_id"]).status == 202
    assert list_left() == ["alices", "bobs", "nobodys"], "no word of the scope"
    assert post(gateway, alice, participant=ALICE).body["counts"] == {"uploads": 1}
    assert list_left() == ["bobs", "nobodys"]
    assert post(gateway, alice, participant=ALICE).status == 404, "nothing is left"
    upload(alice, "again")
    assert post(gateway, eraser, participant=ALICE).body["counts"] == {"uploads": 1}
    whole = post(gateway, eraser, tenant=True)
    assert (whole.status, whole.body["counts"]) == (202, {"uploads": 2})
    gateway.run_job("eraser", "acme")
    assert list_left() == []
    assert [key.split("/")[1] for key in objects(aws, "_uploads/")] == ["globex"]
    scratch_db.rows("update erased_payloads set marked_at = marked_at - interval '1 hour'")
    gateway.run_job("eraser", "acme")
    path = f"{ERASURES}/{whole.body['erasure_id']}"
    counts = gateway.call("GET", path, key=eraser).body["receipt"]["counts"]
    assert (counts["s3_uploads"], counts["uploads"]) == (2, 2)


def test_erasure_makes_pending_upload_of_same_bytes_uncitable(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, eraser: str
) -> None:
    data = b"the same bytes"
    upload_file(gateway, eraser, data, mime_type="text/plain")
    event = gateway.call("POST", "/api/v1/events", citing(cid_of(data)), key=eraser).body
    erase(gateway, eraser, event["event_id"])
    late = gateway.call("POST", "/api/v1/events", citing(cid_of(data)), key=eraser)
    assert late.status == 422, late.text
    upload_file(gateway, eraser, data, mime_type="text/plain")
    again = gateway.call("POST", "/api/v1/events", citing(cid_of(data)), key=eraser)
    assert again.status == 201, again.text
    for _ in range(2):
        gateway.run_job("eraser", "acme")
        for table in ("blob_removals", "erased_payloads"):
            scratch_db.rows(f"update {table} set marked_at = marked_at - interval '1 hour'")  # noqa: S608
    query = {"participants": ALICE}
    file = gateway.call("GET", f"/file/{cid_of(data)}", key=eraser, query=query)
    assert file.status in (200, 307), "it was said again"
    assert len(objects(aws, "acme/")) == 1


def test_erasure_race_on_one_event_makes_one_erasure(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, eraser: str
) -> None:
    """Each DELETE gives it; each POST is the one or a 410."""
    for n in range(5):
        one, other = (tell(eraser, f"{n} {word}.")["event_id"] for word in ("one", "other"))

        def delete(_: int, event_id: str = one) -> Reply:
            return gateway.call("DELETE", f"/api/v1/events/{event_id}", key=eraser)

        def erase_two(_: int, ids: tuple[str, ...] = (one, other)) -> Reply:
            return post(gateway, eraser, event_ids=[*ids])

        with ThreadPoolExecutor(6) as threads:
            posts = threads.map(erase_two, range(3))
            deletes = [*threads.map(delete, range(3))]
        assert {reply.status for reply in deletes} == {200}, [r.text for r in deletes]
        assert {reply.status for reply in posts} <= {202, 410}
        erase(gateway, eraser, other)
        counts = scratch_db.rows(
            "select sum((counts ->> 'events')::int), count(*) filter (where counts ->> 'events' is"
            " null), count(distinct erasure_id) from erasures"
        )
        assert counts == [(2 * (n + 1), 0, counts[0][2])], "each once, and no erasure of nothing"
        assert len({reply.body["erasure_id"] for reply in deletes}) == 1
