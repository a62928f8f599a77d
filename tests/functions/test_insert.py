"""Insert: an append whose edges recall finds, and to nothing that one of its participants cannot
see."""

import base64
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from strandline.db.database import Caller
from strandline.log import store_links
from strandline.log.cid import block_cid, cid_bytes
from strandline.log.event_draft import EventDraft
from strandline.recall import insert as recall_insert
from strandline.resources import Resources
from tests.functions.conftest import Told
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.support import Gateway, Reply, ScratchDatabase, user_message

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
INSERT, EVENTS = "/api/v1/insert", "/api/v1/events"
KEYED = {"Idempotency-Key": "k-1"}


def insert(gateway: Gateway, key: str, text: str, *who: str, **more: Any) -> Reply:
    headers: Mapping[str, str] = more.pop("headers", {})
    body = user_message(text, *(who or (ALICE,)), **more)
    return gateway.call("POST", INSERT, body, key=key, headers=headers)


def inserted(gateway: Gateway, key: str, text: str, *who: str, **more: Any) -> Any:
    reply = insert(gateway, key, text, *who, **more)
    assert reply.status == 201, reply.text
    return reply.body


def cited(receipt: Any) -> list[str]:
    return [edge["event_id"] for edge in receipt["edges"]]


def use(monkeypatch: pytest.MonkeyPatch, embedder: object) -> None:
    """Give the query function another embedder."""
    service: Resources = importlib.import_module("functions.query.handler").resources
    monkeypatch.setitem(service.__dict__, "embedder", embedder)


def fail(texts: Sequence[str]) -> None:
    raise ConnectionError(f"away, for {len(texts)}")


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key(user=ALICE)


@pytest.fixture
def dog(gateway: Gateway, key: str, tell: Told) -> Any:
    """An event that the next may rest on, among others."""
    told = tell(key, "My dog has to see the vet on Thursday.", ALICE)
    tell(key, "The invoice is overdue.", ALICE)
    tell(key, "The compiler crashed again.", ALICE)
    gateway.sweep()
    return told


def test_an_insert_is_linked_to_what_recall_finds(gateway: Gateway, key: str, dog: Any) -> None:
    text = "The vet says that the dog is well."
    hits = gateway.call("POST", "/api/v1/recall", {"query": text}, key=key).body["hits"]
    receipt = inserted(gateway, key, text)
    assert receipt["edges"] == [
        {"event_id": dog["event_id"], "cid": dog["cid"], "weight": hits[0]["relevance"]}
    ]
    assert receipt["degraded"] == []
    event = gateway.call("GET", f"{EVENTS}/{receipt['event_id']}", key=key).body
    assert event["edges"] == receipt["edges"]
    assert {name: event[name] for name in ("cid", "scope_id", "seq", "recorded_at")} == {
        name: receipt[name] for name in ("cid", "scope_id", "seq", "recorded_at")
    }


def test_the_block_holds_the_edges(gateway: Gateway, key: str, dog: Any) -> None:
    """Its CID is the hash of a block in which the found event's CID stands."""
    receipt = inserted(gateway, key, "The vet says that the dog is well.")
    reply = gateway.call("GET", f"/ipfs/{receipt['cid']}", key=key)
    block = base64.b64decode(reply.text)
    assert block_cid(block) == receipt["cid"]
    assert cid_bytes(dog["cid"], "cid") in block
    plain = user_message("The vet says that the dog is well.", ALICE)
    assert gateway.call("POST", EVENTS, plain, key=key).body["cid"] != receipt["cid"]
    edges = [{"event_id": dog["event_id"], "weight": receipt["edges"][0]["weight"]}]
    body = user_message("The vet says that the dog is well.", ALICE, edges=edges)
    assert gateway.call("POST", EVENTS, body, key=key).body["cid"] == receipt["cid"]


def test_nothing_is_linked_that_one_participant_cannot_see(
    gateway: Gateway, tell: Told, scratch_db: ScratchDatabase
) -> None:
    """Neither where the tenant's agents share: they are listeners of what is linked."""
    key, text = gateway.key(), "The harbour is closed on Sunday because of the regatta."
    told = {
        who: tell(key, text, *who)["event_id"]
        for who in ((ALICE,), (BOB,), (ALICE, BOB), (ALICE, HELPER), (ALICE, BOB, HELPER))
    }
    tell(gateway.key("globex"), text, ALICE, BOB, HELPER)
    gateway.sweep()
    for share in (False, True):
        scratch_db.rows("update tenants set agents_share = %s", share)
        for who in list(told):
            receipt = inserted(gateway, key, text, *who, recall={"limit": 20, "min_relevance": 0})
            visible = {event for seen, event in told.items() if set(who) <= set(seen)}
            assert visible <= set(cited(receipt)), who
            assert not set(cited(receipt)) & {*told.values()} - visible, who


def test_a_finder_that_sees_too_much_links_no_more(
    gateway: Gateway, tell: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: it recalls for the writer, or for all. The append looks by itself."""
    bound, text = gateway.key(user=ALICE), "The harbour is closed on Sunday."
    secret = tell(bound, text, ALICE)["event_id"]
    shared = tell(bound, text, ALICE, BOB)["event_id"]
    real = recall_insert.Caller
    viewers: list[tuple[str, ...]] = [(ALICE,), ()]

    def careless(tenant: str, *_: object) -> Caller:
        return real(tenant, viewers[-1])

    monkeypatch.setattr(recall_insert, "Caller", careless)
    while viewers:
        receipt = inserted(gateway, bound, text, ALICE, BOB, recall={"min_relevance": 0})
        assert shared in cited(receipt)
        assert secret not in cited(receipt)
        viewers.pop()


def test_a_caller_inserts_only_where_it_may_append(gateway: Gateway) -> None:
    bound = gateway.key(user=ALICE)
    assert insert(gateway, bound, "For bob.", BOB).status == 403
    assert insert(gateway, bound, "As bob.", ALICE, BOB, speaker=BOB).status == 403
    for rights in (("read",), ("write",), ("operator",)):
        reply = insert(gateway, gateway.key(rights=rights), "Who may?")
        assert reply.status == 403, rights
    assert insert(gateway, gateway.key(rights=("read", "write")), "I may.").status == 201


def test_edges_are_few_and_those_of_the_body_come_first(
    gateway: Gateway, key: str, tell: Told
) -> None:
    told = [tell(key, f"The buoy at pier {n} is red.", ALICE) for n in range(8)]
    gateway.sweep()
    text = "A buoy is red."
    many = inserted(gateway, key, text, recall={"limit": 3, "min_relevance": 0})
    assert len(many["edges"]) == 3
    assert len(inserted(gateway, key, text, recall={"min_relevance": 0})["edges"]) == 5
    assert inserted(gateway, key, text, recall={"min_relevance": 1})["edges"] == []
    own = [{"event_id": told[0]["event_id"], "weight": 0.25}, {"cid": told[1]["cid"]}]
    receipt = inserted(gateway, key, text, edges=own, recall={"limit": 20, "min_relevance": 0})
    weights = {edge["event_id"]: edge["weight"] for edge in receipt["edges"]}
    assert (weights[told[0]["event_id"]], weights[told[1]["event_id"]]) == (0.25, 1.0)
    assert len(weights) == len(receipt["edges"]) > len(told)
    receipt = inserted(gateway, key, text, edges=own, recall={"limit": 1, "min_relevance": 0})
    assert set(cited(receipt)) == {told[0]["event_id"], told[1]["event_id"]}


def test_the_same_words_in_the_same_memory_find_the_same(gateway: Gateway, tell: Told) -> None:
    """In two tenants alike, whatever their ids."""
    found: list[list[int]] = []
    for tenant in ("acme", "globex"):
        key = gateway.key(tenant, user=ALICE)
        told = [tell(key, "The buoy is red.", ALICE)["event_id"] for _ in range(9)]
        gateway.sweep()
        receipt = inserted(gateway, key, "A buoy is red.", recall={"limit": 4, "min_relevance": 0})
        found.append(sorted(told.index(event_id) for event_id in cited(receipt)))
    assert found[0] == found[1]
    assert len(found[0]) == 4


def test_a_replay_answers_the_first_event_with_its_first_edges(
    gateway: Gateway, key: str, dog: Any, tell: Told
) -> None:
    text = "The vet says that the dog is well."
    first = insert(gateway, key, text, headers=KEYED)
    tell(key, "The vet called about the dog again.", ALICE)
    gateway.sweep()
    again = insert(gateway, key, text, headers=KEYED)
    assert (again.status, again.text) == (201, first.text)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert cited(first.body) == [dog["event_id"]]
    more = inserted(gateway, key, text)  # without the key it is another event, linked anew
    assert len(more["edges"]) > 1
    keyed = inserted(gateway, key, text, source_event_key="k-1")
    assert keyed == first.body, "an Idempotency-Key is a key of the channel http"


def test_another_request_with_the_same_key_is_a_conflict(
    gateway: Gateway, key: str, dog: Any
) -> None:
    text = "The vet says that the dog is well."
    assert insert(gateway, key, text, headers=KEYED).status == 201
    own = [{"event_id": dog["event_id"], "weight": 0.1}]
    others: list[tuple[str, dict[str, Any]]] = [
        ("recall", {"recall": {"limit": 2}}),
        ("recall", {"recall": {"min_relevance": 0}}),
        ("role", {"role": "system"}),
        ("edges", {"edges": own}),
    ]
    for name, more in others:
        reply = insert(gateway, key, text, headers=KEYED, **more)
        assert (reply.status, reply.error["details"]["fields"][0]) == (409, name)
    plain = gateway.call("POST", EVENTS, user_message(text, ALICE), key=key, headers=KEYED)
    assert (plain.status, plain.error["details"]["fields"]) == (409, ["edges"])


def test_an_insert_is_no_replay_of_a_plain_append(gateway: Gateway, key: str, dog: Any) -> None:
    """Who asks for links and gets none would not know it."""
    text = "The vet says that the dog is well."
    told = gateway.call("POST", EVENTS, user_message(text, ALICE), key=key, headers=KEYED)
    assert told.status == 201
    reply = insert(gateway, key, text, headers=KEYED)
    assert (reply.status, reply.error["details"]["fields"]) == (409, ["recall"])
    assert dog["event_id"] in cited(inserted(gateway, key, text))


def test_a_fingerprint_over_what_was_found_is_noticed(
    gateway: Gateway, key: str, dog: Any, tell: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: then a replay would be a conflict as soon as recall finds more."""
    real = EventDraft.compute_fingerprint

    def over_all(draft: EventDraft) -> str:
        request = draft.request.model_copy(update={"edges": draft.edges})
        return real(replace(draft, request=request))

    monkeypatch.setattr(EventDraft, "compute_fingerprint", over_all)
    with pytest.raises(AssertionError):
        test_a_replay_answers_the_first_event_with_its_first_edges(gateway, key, dog, tell)


def test_without_the_model_words_alone_find_edges(
    gateway: Gateway, key: str, dog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = WordEmbedder()
    away.before_embed = fail
    with monkeypatch.context() as patch:
        use(patch, away)
        first = insert(gateway, key, "The vet says that the dog is well.", headers=KEYED)
        nothing = inserted(gateway, key, "Zyzzyva.")
    assert (first.status, cited(first.body)) == (201, [dog["event_id"]])
    assert first.body["degraded"] == ["no_query_vector"]
    assert nothing["edges"] == [], "what merely is there is in no answer's way, but in an edge's"
    again = insert(gateway, key, "The vet says that the dog is well.", headers=KEYED)
    assert again.text == first.text, "a replay tells how it was"


def test_no_transaction_is_open_while_the_model_works(
    gateway: Gateway, key: str, dog: Any, scratch_db: ScratchDatabase, monkeypatch: Any
) -> None:
    open_counts: list[int] = []
    ask = "select count(*) from pg_stat_activity where state like %s and datname = %s"

    def look(texts: Sequence[str]) -> None:
        assert texts
        [(count,)] = scratch_db.rows(ask, "idle in transaction%", scratch_db.name)
        open_counts.append(count)

    embedder = WordEmbedder()
    embedder.before_embed = look
    use(monkeypatch, embedder)
    assert insert(gateway, key, "The vet says that the dog is well.").status == 201
    assert open_counts == [0]


def test_an_event_erased_meanwhile_is_left_out(
    gateway: Gateway, key: str, dog: Any, scratch_db: ScratchDatabase, monkeypatch: Any
) -> None:
    """Between the search and the append: the caller's own request is right, and is stored."""
    real = store_links.append_linked_event

    def erase_first(*args: Any) -> Any:
        scratch_db.rows(
            "update events set erased_at = now(), content = null, cid = null where event_id = %s",
            dog["event_id"],
        )
        return real(*args)

    monkeypatch.setattr(store_links, "append_linked_event", erase_first)
    assert inserted(gateway, key, "The vet says that the dog is well.")["edges"] == []
    reply = insert(gateway, key, "No such event.", edges=[{"event_id": dog["event_id"]}])
    assert (reply.status, reply.error["details"]["field"]) == (422, "edges")


def test_how_it_was_linked_is_stored_with_the_event(
    gateway: Gateway, key: str, dog: Any, scratch_db: ScratchDatabase, monkeypatch: Any
) -> None:
    """In one transaction, once; a plain append stores nothing of it."""
    receipt = insert(gateway, key, "The vet says that the dog is well.", headers=KEYED).body
    assert insert(gateway, key, "The vet says that the dog is well.", headers=KEYED).status == 201
    rows = scratch_db.rows(
        "select d.event_id::text, d.at_seq, d.body, d.xmin = e.xmin from decisions d"
        " join events e using (tenant_id, event_id) where d.kind = 'links'"
    )
    assert rows == [(receipt["event_id"], receipt["seq"], {"degraded": []}, True)]

    monkeypatch.setattr(store_links, "uuid7", lambda: "no id")  # the decision cannot be stored
    assert insert(gateway, key, "Nothing is stored by half.").status == 500
    page = gateway.call("GET", "/memories/list", key=key).body
    assert "Nothing is stored by half." not in {event["content"] for event in page["events"]}


def test_a_long_text_and_a_payload_are_linked_by_their_beginning(
    gateway: Gateway, key: str, dog: Any
) -> None:
    text = "The vet says that the dog is well. " + "And on and on it went. " * 4000
    receipt = inserted(gateway, key, text)
    assert receipt["blob"]["size"] == len(text)
    assert dog["event_id"] in cited(receipt)
    citing = {"participants": [ALICE], "role": "user", "blob": {"cid": receipt["blob"]["cid"]}}
    body = {**citing, "name": "vet.txt", "recall": {"limit": 1}}
    reply = gateway.call("POST", INSERT, body, key=key)
    assert (reply.status, len(reply.body["edges"])) == (201, 1)
    blank = inserted(gateway, key, " \n ")
    assert (blank["edges"], blank["degraded"]) == ([], [])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"limit": 0}, "recall.limit"),
        ({"limit": 21}, "recall.limit"),
        ({"limit": "5"}, "recall.limit"),
        ({"min_relevance": 1.5}, "recall.min_relevance"),
        ({"min_relevance": -1}, "recall.min_relevance"),
        ({"depth": 2}, "recall.depth"),
        ([], "recall"),
    ],
)
def test_a_refusal_names_the_option(gateway: Gateway, key: str, options: Any, field: str) -> None:
    reply = insert(gateway, key, "The buoy.", recall=options)
    assert (reply.status, reply.error["details"]["field"]) == (422, field)


def test_what_an_append_refuses_an_insert_refuses(gateway: Gateway, key: str) -> None:
    bodies: list[object] = [
        {"participants": [ALICE], "role": "user"},
        {"role": "user", "content": "Who?"},
        [],
    ]
    for body in bodies:
        reply = gateway.call("POST", INSERT, body, key=key)
        plain = gateway.call("POST", EVENTS, body, key=key)
        assert (reply.status, plain.status) == (422, 422)
        assert reply.error["details"]["field"] == plain.error["details"]["field"]
    assert gateway.call("POST", INSERT, raw=b"{", key=key).status == 400
    assert insert(gateway, key, "Mine.", session_id="s-1").status == 201
    wider = insert(gateway, key, "Not mine alone.", ALICE, BOB, session_id="s-1")
    assert (wider.status, wider.error["details"]["field"]) == (422, "session_id")


def test_an_insert_counts_as_an_append(gateway: Gateway, key: str, monkeypatch: Any) -> None:
    spent: list[tuple[str, int]] = []
    service: Resources = importlib.import_module("functions.query.handler").resources

    def spend(tenant: str, quota: str, units: int, deadline: float) -> None:
        assert (tenant, deadline > 0) == ("acme", True)
        spent.append((quota, units))

    monkeypatch.setattr(service.quotas, "spend", spend)
    text = "The buoy is red."
    assert insert(gateway, key, text).status == 201
    assert spent == [("requests", 1), ("appends", 1), ("stored_bytes", len(text) + len("{}"))]
