"""Insert: an append whose edges recall finds, and to nothing that one of its participants cannot
see."""

import base64
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from strandline.db.database import Caller
from strandline.log import store_links_and_sources
from strandline.log.cid import cid_to_bytes, compute_block_cid
from strandline.log.event_draft import EventDraft
from strandline.recall import routes
from strandline.resources import Resources
from tests.strandline.embeddings.fake_embedders import KnownEmbedders, WordEmbedder
from tests.support import Gateway, Reply, ScratchDatabase, Tell, user_message

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
INSERT, EVENTS = "/api/v1/insert", "/api/v1/events"
KEY_HEADER = {"Idempotency-Key": "k-1"}


def insert(gateway: Gateway, key: str, text: str, *who: str, **more: Any) -> Reply:
    headers: Mapping[str, str] = more.pop("headers", {})
    body = user_message(text, *(who or (ALICE,)), **more)
    return gateway.call("POST", INSERT, body, key=key, headers=headers)


def insert_text(gateway: Gateway, key: str, text: str, *who: str, **more: Any) -> Any:
    reply = insert(gateway, key, text, *who, **more)
    assert reply.status == 201, reply.text
    return reply.body


def cited_ids(receipt: Any) -> list[str]:
    return [edge["event_id"] for edge in receipt["edges"]]


def use(monkeypatch: pytest.MonkeyPatch, embedder: object) -> None:
    """Give the query function another embedder, and no other that it could reach."""
    service: Resources = importlib.import_module("functions.query.handler").resources
    monkeypatch.setitem(service.__dict__, "embedder", embedder)
    monkeypatch.setitem(service.__dict__, "embedders", KnownEmbedders())


def fail(texts: Sequence[str]) -> None:
    raise ConnectionError(f"away, for {len(texts)}")


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key(user=ALICE)


@pytest.fixture
def dog(gateway: Gateway, key: str, tell: Tell) -> Any:
    """An event that the next may rest on, among others."""
    receipt = tell(key, "My dog has to see the vet on Thursday.", ALICE)
    tell(key, "The invoice is overdue.", ALICE)
    tell(key, "The compiler crashed again.", ALICE)
    gateway.sweep()
    return receipt


def test_insert_links_to_recall_hits(gateway: Gateway, key: str, dog: Any) -> None:
    text = "The vet says that the dog is well."
    hits = gateway.call("POST", "/api/v1/recall", {"query": text}, key=key).body["hits"]
    receipt = insert_text(gateway, key, text)
    assert receipt["edges"] == [
        {"event_id": dog["event_id"], "cid": dog["cid"], "weight": hits[0]["relevance"]}
    ]
    assert receipt["degraded"] == []
    event = gateway.call("GET", f"{EVENTS}/{receipt['event_id']}", key=key).body
    assert event["edges"] == receipt["edges"]
    assert {name: event[name] for name in ("cid", "scope_id", "seq", "recorded_at")} == {
        name: receipt[name] for name in ("cid", "scope_id", "seq", "recorded_at")
    }


def test_insert_block_holds_edges(gateway: Gateway, key: str, dog: Any) -> None:
    """Its CID is the hash of a block in which the found event's CID stands."""
    receipt = insert_text(gateway, key, "The vet says that the dog is well.")
    reply = gateway.call("GET", f"/ipfs/{receipt['cid']}", key=key)
    block = base64.b64decode(reply.text)
    assert compute_block_cid(block) == receipt["cid"]
    assert cid_to_bytes(dog["cid"], "cid") in block
    plain = user_message("The vet says that the dog is well.", ALICE)
    assert gateway.call("POST", EVENTS, plain, key=key).body["cid"] != receipt["cid"]
    edges = [{"event_id": dog["event_id"], "weight": receipt["edges"][0]["weight"]}]
    body = user_message("The vet says that the dog is well.", ALICE, edges=edges)
    assert gateway.call("POST", EVENTS, body, key=key).body["cid"] == receipt["cid"]


def test_insert_links_only_events_all_participants_see(
    gateway: Gateway, tell: Tell, scratch_db: ScratchDatabase
) -> None:
    """Neither where the tenant's agents share: they are listeners of what is linked."""
    key, text = gateway.key(), "The harbour is closed on Sunday because of the regatta."
    values = {
        who: tell(key, text, *who)["event_id"]
        for who in ((ALICE,), (BOB,), (ALICE, BOB), (ALICE, HELPER), (ALICE, BOB, HELPER))
    }
    tell(gateway.key("globex"), text, ALICE, BOB, HELPER)
    gateway.sweep()
    for share in (False, True):
        scratch_db.rows("update tenants set agents_share = %s", share)
        for who in list(values):
            receipt = insert_text(
                gateway, key, text, *who, recall={"limit": 20, "min_relevance": 0}
            )
            visible = {event for view, event in values.items() if set(who) <= set(view)}
            assert visible <= set(cited_ids(receipt)), who
            assert not set(cited_ids(receipt)) & {*values.values()} - visible, who


def test_insert_rechecks_visibility_of_found_events(
    gateway: Gateway, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: it recalls for the writer, or for all. The append looks by itself."""
    bound, text = gateway.key(user=ALICE), "The harbour is closed on Sunday."
    secret = tell(bound, text, ALICE)["event_id"]
    shared = tell(bound, text, ALICE, BOB)["event_id"]
    real = routes.Caller
    viewers: list[tuple[str, ...]] = [(ALICE,), ()]

    def careless(tenant: str, *_: object) -> Caller:
        return real(tenant, viewers[-1])

    monkeypatch.setattr(routes, "Caller", careless)
    while viewers:
        receipt = insert_text(gateway, bound, text, ALICE, BOB, recall={"min_relevance": 0})
        assert shared in cited_ids(receipt)
        assert secret not in cited_ids(receipt)
        viewers.pop()


def test_insert_needs_permission_to_append(gateway: Gateway) -> None:
    bound = gateway.key(user=ALICE)
    assert insert(gateway, bound, "For bob.", BOB).status == 403
    assert insert(gateway, bound, "As bob.", ALICE, BOB, speaker=BOB).status == 403
    for rights in (("read",), ("write",), ("operator",)):
        reply = insert(gateway, gateway.key(rights=rights), "Who may?")
        assert reply.status == 403, rights
    assert insert(gateway, gateway.key(rights=("read", "write")), "I may.").status == 201


def test_insert_limits_edges_and_keeps_own_first(gateway: Gateway, key: str, tell: Tell) -> None:
    receipts = [tell(key, f"The buoy at pier {n} is red.", ALICE) for n in range(8)]
    gateway.sweep()
    text = "A buoy is red."
    many = insert_text(gateway, key, text, recall={"limit": 3, "min_relevance": 0})
    assert len(many["edges"]) == 3
    assert len(insert_text(gateway, key, text, recall={"min_relevance": 0})["edges"]) == 5
    assert insert_text(gateway, key, text, recall={"min_relevance": 1})["edges"] == []
    own = [{"event_id": receipts[0]["event_id"], "weight": 0.25}, {"cid": receipts[1]["cid"]}]
    receipt = insert_text(gateway, key, text, edges=own, recall={"limit": 20, "min_relevance": 0})
    weights = {edge["event_id"]: edge["weight"] for edge in receipt["edges"]}
    assert (weights[receipts[0]["event_id"]], weights[receipts[1]["event_id"]]) == (0.25, 1.0)
    assert len(weights) == len(receipt["edges"]) > len(receipts)
    receipt = insert_text(gateway, key, text, edges=own, recall={"limit": 1, "min_relevance": 0})
    assert set(cited_ids(receipt)) == {receipts[0]["event_id"], receipts[1]["event_id"]}


def test_insert_finds_same_edges_in_equal_memories(gateway: Gateway, tell: Tell) -> None:
    """In two tenants alike, whatever their ids."""
    results: list[list[int]] = []
    for tenant in ("acme", "globex"):
        key = gateway.key(tenant, user=ALICE)
        event_ids = [tell(key, "The buoy is red.", ALICE)["event_id"] for _ in range(9)]
        gateway.sweep()
        receipt = insert_text(
            gateway, key, "A buoy is red.", recall={"limit": 4, "min_relevance": 0}
        )
        results.append(sorted(event_ids.index(event_id) for event_id in cited_ids(receipt)))
    assert results[0] == results[1]
    assert len(results[0]) == 4


def test_insert_replay_returns_first_edges(
    gateway: Gateway, key: str, dog: Any, tell: Tell
) -> None:
    text = "The vet says that the dog is well."
    first = insert(gateway, key, text, headers=KEY_HEADER)
    tell(key, "The vet called about the dog again.", ALICE)
    gateway.sweep()
    again = insert(gateway, key, text, headers=KEY_HEADER)
    assert (again.status, again.text) == (201, first.text)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert cited_ids(first.body) == [dog["event_id"]]
    more = insert_text(gateway, key, text)  # without the key it is another event, linked again
    assert len(more["edges"]) > 1
    body = insert_text(gateway, key, text, source_event_key="k-1")
    assert body == first.body, "an Idempotency-Key is a key of the channel http"


def test_insert_key_conflicts_with_other_request(gateway: Gateway, key: str, dog: Any) -> None:
    text = "The vet says that the dog is well."
    assert insert(gateway, key, text, headers=KEY_HEADER).status == 201
    own = [{"event_id": dog["event_id"], "weight": 0.1}]
    others: list[tuple[str, dict[str, Any]]] = [
        ("recall", {"recall": {"limit": 2}}),
        ("recall", {"recall": {"min_relevance": 0}}),
        ("role", {"role": "system"}),
        ("edges", {"edges": own}),
    ]
    for name, more in others:
        reply = insert(gateway, key, text, headers=KEY_HEADER, **more)
        assert (reply.status, reply.error["details"]["fields"][0]) == (409, name)
    plain = gateway.call("POST", EVENTS, user_message(text, ALICE), key=key, headers=KEY_HEADER)
    assert (plain.status, plain.error["details"]["fields"]) == (409, ["edges"])


def test_insert_is_no_replay_of_plain_append(gateway: Gateway, key: str, dog: Any) -> None:
    """Who asks for links and gets none would not know it."""
    text = "The vet says that the dog is well."
    response = gateway.call("POST", EVENTS, user_message(text, ALICE), key=key, headers=KEY_HEADER)
    assert response.status == 201
    reply = insert(gateway, key, text, headers=KEY_HEADER)
    assert (reply.status, reply.error["details"]["fields"]) == (409, ["recall"])
    assert dog["event_id"] in cited_ids(insert_text(gateway, key, text))


def test_insert_fingerprint_with_found_edges_is_detected(
    gateway: Gateway, key: str, dog: Any, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: then a replay would be a conflict as soon as recall finds more."""
    real = EventDraft.compute_fingerprint

    def over_all(draft: EventDraft) -> str:
        request = draft.request.model_copy(update={"edges": draft.edges})
        return real(replace(draft, request=request))

    monkeypatch.setattr(EventDraft, "compute_fingerprint", over_all)
    with pytest.raises(AssertionError):
        test_insert_replay_returns_first_edges(gateway, key, dog, tell)


def test_insert_without_model_links_by_words(
    gateway: Gateway, key: str, dog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = WordEmbedder()
    away.before_embed = fail
    with monkeypatch.context() as patch:
        use(patch, away)
        first = insert(gateway, key, "The vet says that the dog is well.", headers=KEY_HEADER)
        nothing = insert_text(gateway, key, "Zyzzyva.")
    assert (first.status, cited_ids(first.body)) == (201, [dog["event_id"]])
    assert first.body["degraded"] == ["no_query_vector"]
    assert nothing["edges"] == [], "what merely is there is in no answer's way, but in an edge's"
    again = insert(gateway, key, "The vet says that the dog is well.", headers=KEY_HEADER)
    assert again.text == first.text, "a replay tells how it was"


def test_insert_holds_no_transaction_during_embedding(
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


def test_insert_omits_event_erased_meanwhile(
    gateway: Gateway, key: str, dog: Any, scratch_db: ScratchDatabase, monkeypatch: Any
) -> None:
    """Between the search and the append: the caller's own request is right, and is stored."""
    real = store_links_and_sources.append_linked_event

    def erase_first(*args: Any) -> Any:
        scratch_db.rows(
            "update events set erased_at = now(), content = null, cid = null where event_id = %s",
            dog["event_id"],
        )
        return real(*args)

    monkeypatch.setattr(store_links_and_sources, "append_linked_event", erase_first)
    assert insert_text(gateway, key, "The vet says that the dog is well.")["edges"] == []
    reply = insert(gateway, key, "No such event.", edges=[{"event_id": dog["event_id"]}])
    assert (reply.status, reply.error["details"]["field"]) == (422, "edges")


def test_insert_stores_link_decision_with_event(
    gateway: Gateway, key: str, dog: Any, scratch_db: ScratchDatabase, monkeypatch: Any
) -> None:
    """In one transaction, once; a plain append stores nothing of it."""
    receipt = insert(gateway, key, "The vet says that the dog is well.", headers=KEY_HEADER).body
    assert (
        insert(gateway, key, "The vet says that the dog is well.", headers=KEY_HEADER).status == 201
    )
    rows = scratch_db.rows(
        "select d.event_id::text, d.at_seq, d.body, d.xmin = e.xmin from decisions d"
        " join events e using (tenant_id, event_id) where d.kind = 'links'"
    )
    assert rows == [(receipt["event_id"], receipt["seq"], {"degraded": []}, True)]

    monkeypatch.setattr(
        store_links_and_sources, "uuid7", lambda: "no id"
    )  # the decision cannot be stored
    assert insert(gateway, key, "Nothing is stored by half.").status == 500
    page = gateway.call("GET", "/memories/list", key=key).body
    assert "Nothing is stored by half." not in {event["content"] for event in page["events"]}


def test_insert_links_long_text_by_its_beginning(gateway: Gateway, key: str, dog: Any) -> None:
    text = "The vet says that the dog is well. " + "And on and on it went. " * 4000
    receipt = insert_text(gateway, key, text)
    assert receipt["blob"]["size"] == len(text)
    assert dog["event_id"] in cited_ids(receipt)
    citing = {"participants": [ALICE], "role": "user", "blob": {"cid": receipt["blob"]["cid"]}}
    body = {**citing, "name": "vet.txt", "recall": {"limit": 1}}
    reply = gateway.call("POST", INSERT, body, key=key)
    assert (reply.status, len(reply.body["edges"])) == (201, 1)
    blank = insert_text(gateway, key, " \n ", type="observation")
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
def test_insert_refusal_names_option(gateway: Gateway, key: str, options: Any, field: str) -> None:
    reply = insert(gateway, key, "The buoy.", recall=options)
    assert (reply.status, reply.error["details"]["field"]) == (422, field)


def test_insert_refuses_same_bodies_as_append(gateway: Gateway, key: str) -> None:
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


def test_insert_spends_append_quota(gateway: Gateway, key: str, monkeypatch: Any) -> None:
    costs: list[tuple[str, int]] = []
    service: Resources = importlib.import_module("functions.query.handler").resources

    def spend(tenant: str, quota: str, units: int, deadline: float) -> None:
        assert (tenant, deadline > 0) == ("acme", True)
        costs.append((quota, units))

    monkeypatch.setattr(service.quotas, "spend", spend)
    text = "The buoy is red."
    assert insert(gateway, key, text).status == 201
    assert costs == [("requests", 1), ("appends", 1), ("stored_bytes", len(text) + len("{}"))]
