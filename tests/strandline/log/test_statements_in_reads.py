"""Statements in the API: nobody appends one, everybody who may see it finds it, and nothing that is
made of conversations shows it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from strandline.db.database import Database
from strandline.sessions.store import MAX_RECENT
from tests.chains import add_chain
from tests.statements import ALICE, HELPER, make_principal, make_statement, state
from tests.support import Gateway, ScratchDatabase, user_message

FACT = "Alice's lighthouse stands at Cape Finisterre."
STATEMENT = "The harbour master called about the lighthouse."
QUESTION = "Where is the lighthouse?"
KINDS = {"message", "thought", "action", "observation", "upload"}


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key(user=ALICE)


@pytest.fixture
def database(gateway: Gateway, scratch_db: ScratchDatabase) -> Iterator[Database]:
    """To state by."""
    connection = Database(scratch_db.url)
    yield connection
    connection.close()


@pytest.fixture
def statement_id(gateway: Gateway, key: str, database: Database) -> str:
    """A message, and then a statement in the same scope; gives the statement's id."""
    reply = gateway.call("POST", "/api/v1/events", user_message(STATEMENT), key=key)
    assert reply.status == 201, reply.text
    (result,) = state(database, [make_statement(FACT)], make_principal(ALICE))
    assert result.receipt
    return str(result.receipt.event_id)


def call(gateway: Gateway, key: str, method: str, path: str, body: Any = None, **query: Any) -> Any:
    reply = gateway.call(method, path, body, key=key, query=query)
    assert reply.status == 200, reply.text
    return reply.body


# appending ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/sessions/s/events", "/api/v1/insert"])
def test_statement_cannot_be_appended(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, path: str
) -> None:
    session = {"session_id": "s", "participants": [ALICE, HELPER]}
    assert gateway.call("POST", "/api/v1/sessions", session, key=key).status == 201
    body: dict[str, Any] = user_message(FACT, type="statement")
    if "sessions" in path:
        del body["participants"]
    for who in (key, gateway.key(rights=["admin"])):
        reply = gateway.call("POST", path, body, key=who)
        assert (reply.status, reply.error["details"]["field"]) == (422, "type"), reply.text
        assert "/api/v1/graph" in reply.error["message"]
    assert scratch_db.rows("select count(*) from events") == [(0,)]


def test_statement_in_batch_fails_alone(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    events = [user_message(STATEMENT), user_message(FACT, type="statement")]
    answer = call(gateway, key, "POST", "/api/v1/events/batch", {"events": events})
    assert [item["status"] for item in answer["results"]] == [201, 422]
    assert answer["results"][1]["error"]["details"]["field"] == "type"
    assert scratch_db.rows("select type from events") == [("message",)]


def test_statement_type_is_in_openapi_only_for_reading(
    gateway: Gateway,
) -> None:
    schemas = gateway.call("GET", "/openapi.json").body["components"]["schemas"]

    def kinds(model: str) -> set[str]:
        result = schemas[model]["properties"]["type"]
        for part in (result, *result.get("anyOf", []), *result.get("allOf", [])):
            name = part.get("$ref", "").rpartition("/")[2]
            values = (schemas[name] if name else part).get("enum")
            if values:
                return set(values)
        raise AssertionError(result)

    assert kinds("AppendRequest") == KINDS
    for model in ("EventOut", "EventQuery", "RecallRequest"):
        assert kinds(model) == KINDS | {"statement"}


# reading -----------------------------------------------------------------------------------------


def test_statement_is_read_like_event(gateway: Gateway, key: str, statement_id: str) -> None:
    event = call(gateway, key, "GET", f"/api/v1/events/{statement_id}")
    assert (event["type"], event["role"], event["origin"], event["session_id"]) == (
        "statement", "user", "user", None,
    )  # fmt: skip
    assert event["metadata"] == {"graph": {"op": "create", "fact": FACT}}
    feed = call(gateway, key, "GET", f"/api/v1/scopes/{event['scope_id']}/events")
    assert [(e["seq"], e["type"]) for e in feed["events"]] == [(1, "message"), (2, "statement")]
    block = call(gateway, key, "GET", f"/memory/{event['cid']}")
    assert block["event_id"] == statement_id
    stranger = gateway.key(user="user:bob")
    assert gateway.call("GET", f"/api/v1/events/{statement_id}", key=stranger).status == 404


def test_statement_is_listed_and_filtered_by_type(
    gateway: Gateway, key: str, statement_id: str
) -> None:
    def texts(**query: str) -> list[str]:
        (scope,) = call(gateway, key, "POST", "/api/v1/events/query", query)["scopes"]
        return [event["content"] for event in scope["events"]]

    assert texts() == [STATEMENT, FACT]
    for query in ({}, {"text": "lighthouse"}, {"text": "lighthouse", "mode": "exact"}):
        assert texts(**query, type="statement") == [FACT]
        assert texts(**query, type="message") == [STATEMENT]
    body = call(gateway, key, "GET", "/memories/list")
    assert [event["content"] for event in body["events"]] == [FACT, STATEMENT]


@pytest.mark.parametrize("is_embedded", [False, True])
def test_statement_is_found_by_recall(
    gateway: Gateway, key: str, statement_id: str, is_embedded: bool
) -> None:
    if is_embedded:
        gateway.sweep()
    for body in ({}, {"type": "statement"}, {"metadata": {"graph": {"op": "create"}}}):
        query = {"query": QUESTION, "min_relevance": 0, "explain": True, **body}
        hits = call(gateway, key, "POST", "/api/v1/recall", query)["hits"]
        (hit,) = [hit for hit in hits if hit["event_id"] == statement_id]
        assert hit["text"] == FACT
        assert ("meaning" in hit["why"]) == is_embedded
        near = {hit["features"][f"cosine_{place}"] for place in ("before", "after", "nearby")}
        assert len(near) == 1, "nothing is near it: the mean of all candidates stands there"
    query = {"query": QUESTION, "min_relevance": 0, "type": "message", "explain": True}
    (hit,) = call(gateway, key, "POST", "/api/v1/recall", query)["hits"]
    assert hit["text"] == STATEMENT


def test_statement_is_no_neighbour_of_messages(
    gateway: Gateway, key: str, database: Database
) -> None:
    """Two messages are neighbours although something was stated between them."""
    gateway.call("POST", "/api/v1/events", user_message("Who keeps the lighthouse?"), key=key)
    for n in range(9):
        state(database, [make_statement(f"The weather on day {n} is fair.")])
    gateway.call("POST", "/api/v1/events", user_message("Old Tom does."), key=key)
    gateway.sweep()
    query = {"query": "Who keeps the lighthouse?", "min_relevance": 0, "explain": True, "limit": 20}
    hits = call(gateway, key, "POST", "/api/v1/recall", query)["hits"]
    features = {hit["text"]: hit["features"] for hit in hits}
    assert features["Old Tom does."]["cosine_before"] > 2
    assert features["Old Tom does."]["words_nearby"] > 0
    for n in range(9):
        near = features[f"The weather on day {n} is fair."]
        assert near["words_nearby"] == 0
        assert near["cosine_before"] == near["cosine_after"] == 0


def test_statement_has_provenance(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, statement_id: str
) -> None:
    gateway.sweep()
    body = call(gateway, key, "GET", f"/api/v1/provenance/{statement_id}")
    assert (body["kind"], body["id"]) == ("event", statement_id)
    assert (body["topics"], body["chains"], len(body["vectors"])) == ([], [], 1)


# what is made of conversations -------------------------------------------------------------------


def test_statement_is_left_out_of_short_term_memory(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, database: Database
) -> None:
    session = {"session_id": "s", "participants": [ALICE, HELPER]}
    assert gateway.call("POST", "/api/v1/sessions", session, key=key).status == 201
    message = {"role": "user", "content": STATEMENT}
    for n in range(3):
        body = {**message, "content": f"{STATEMENT} {n}"}
        assert gateway.call("POST", "/api/v1/sessions/s/events", body, key=key).status == 201
        state(database, [make_statement(f"{FACT} {n} {i}") for i in range(12)])
    state(database, [make_statement(FACT, ALICE, "agent:other")])  # alone in its scope
    context = call(gateway, key, "GET", "/api/v1/sessions/s/context")
    wide = call(gateway, key, "GET", "/api/v1/sessions/s/context", participants=ALICE)
    for answer in (context, wide):
        texts = [row["event"]["content"] for row in answer["recent"]]
        assert texts == [f"{STATEMENT} {n}" for n in (2, 1, 0)]
    block = call(gateway, key, "POST", "/api/v1/context", {"participants": [ALICE]})
    assert block["text"].count(STATEMENT) == 3
    assert FACT not in block["text"]
    topics = call(gateway, key, "GET", "/api/v1/sessions/s/analysis/topics")
    assert [len(topic["event_ids"]) for topic in topics["topics"]] == [3]


def test_statement_scopes_do_not_crowd_out_context(
    gateway: Gateway, key: str, database: Database
) -> None:
    assert gateway.call("POST", "/api/v1/events", user_message(STATEMENT), key=key).status == 201
    many = [make_statement(FACT, ALICE, f"agent:{n}") for n in range(MAX_RECENT + 1)]
    state(database, many)
    block = call(gateway, key, "POST", "/api/v1/context", {"participants": [ALICE]})
    assert STATEMENT in block["text"]


def test_statement_is_skipped_before_short_answer(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, database: Database
) -> None:
    """Not with a statement; and a short statement comes with nothing."""
    for text in ("Who keeps the light?", "Old Tom does."):
        assert gateway.call("POST", "/api/v1/events", user_message(text), key=key).status == 201
        state(database, [make_statement(f"Stated after {len(text)} letters.")])
    scratch_db.rows("update events set recorded_at = recorded_at - interval '2 hours'")

    def ask(query: str) -> set[str]:
        params = {"participants": [ALICE], "query": query, "min_relevance": 0, "limit": 1}
        block = call(gateway, key, "POST", "/api/v1/context", params)
        event_ids = [citation["event_id"] for citation in block["citations"]]
        statement = "select content from events where event_id::text = any (%s)"
        return {text for (text,) in scratch_db.rows(statement, event_ids)}

    assert ask("Tom") == {"Who keeps the light?", "Old Tom does."}
    assert ask("13 letters") == {"Stated after 13 letters."}


def test_statement_is_in_context_where_it_answers(
    gateway: Gateway, key: str, statement_id: str
) -> None:
    gateway.sweep()
    query = {"participants": [ALICE], "query": QUESTION, "min_relevance": 0}
    block = call(gateway, key, "POST", "/api/v1/context", query)
    latest, _, about = block["text"].partition(FACT)
    assert STATEMENT in latest
    assert about
    assert statement_id in [citation["event_id"] for citation in block["citations"]]


def test_statement_is_left_out_of_topic_index(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, statement_id: str
) -> None:
    gateway.sweep()
    path = "/api/v1/references/query"
    for body in ({}, {"query": QUESTION, "min_relevance": 0}):
        (scope,) = call(gateway, key, "POST", path, body)["tree"]["scopes"]
        assert [e["text"] for e in scope["fresh_tail"]["events"]] == [STATEMENT]
        assert (scope["cutoff"], scope["mark"]) == (0, 2)
        assert FACT not in call(gateway, key, "POST", path, {**body, "format": "text"})["text"]


def test_statement_is_not_counted_by_ended_session(
    gateway: Gateway, key: str, database: Database
) -> None:
    session = {"session_id": "s", "participants": [ALICE, HELPER]}
    assert gateway.call("POST", "/api/v1/sessions", session, key=key).status == 201
    body = {"role": "user", "content": STATEMENT}
    assert gateway.call("POST", "/api/v1/sessions/s/events", body, key=key).status == 201
    state(database, [make_statement(FACT)])
    reply = gateway.call("DELETE", "/api/v1/sessions/s", key=key)
    assert reply.body["events_kept"] == 1


def test_statement_recall_warms_no_chain(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, statement_id: str
) -> None:
    (message,) = scratch_db.rows("select event_id::text from events where type = 'message'")[0]
    chain = add_chain(gateway, scratch_db, [message], formed_at=datetime.now(UTC))
    gateway.sweep()
    query = {"query": QUESTION, "min_relevance": 0, "type": "statement"}
    call(gateway, key, "POST", "/api/v1/recall", query)
    assert scratch_db.rows("select count(*) from recalls") == [(0,)]
    call(gateway, key, "POST", "/api/v1/recall", {"query": QUESTION, "min_relevance": 0})
    assert scratch_db.rows("select chain_id::text from recalls") == [(chain,)]
