"""What somebody used to other APIs sends first is taken, or refused with the way out."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from strandline.local.lambda_context import LambdaContext
from tests.functions.recorded_events import from_file
from tests.support import Gateway, Reply, user_message

ALICE, HELPER = "user:alice", "agent:helper"
EVENTS, SESSION = "/api/v1/events", "/api/v1/sessions/dock"
AT, SECONDS, LATER = "2026-05-08T13:56:00Z", 1778248560, "2026-05-08T13:57:00Z"
type Body = dict[str, Any]


@pytest.fixture
def key(gateway: Gateway) -> str:
    key = gateway.key()
    session = {"session_id": "dock", "participants": [ALICE, HELPER]}
    assert gateway.call("POST", "/api/v1/sessions", session, key=key).status == 201
    return key


def test_request_role_assistant_means_agent(gateway: Gateway, key: str) -> None:
    for role in ("assistant", "agent"):
        body = user_message("Done.", role=role) | {"source_event_key": "one"}
        reply = gateway.call("POST", EVENTS, body, key=key)
        assert reply.status == 201, reply.text  # the second is the first again
    response = gateway.call(
        "POST", f"{EVENTS}/query", {"role": "assistant", "participants": [ALICE]}, key=key
    )
    (event,) = response.body["scopes"][0]["events"]
    assert (event["role"], event["speaker"], event["origin"]) == ("agent", HELPER, "agent")


@pytest.mark.parametrize(
    ("path", "body", "field", "words"),
    [
        (
            EVENTS,
            {"user_id": "alice", "role": "user", "content": "x"},
            "participants",
            "user:alice",
        ),
        (EVENTS, user_message("x", user_id="alice"), "user_id", "participants"),
        (EVENTS, user_message("x", agent_id="helper"), "agent_id", "agent:helper"),
        (EVENTS, user_message("x", role="tool"), "role", "observation"),
        ("/api/v1/recall", {"query": "x", "user_id": "alice"}, "user_id", "participants"),
        (f"{EVENTS}/query", {"user_id": "alice"}, "user_id", "participants"),
    ],
)
def test_request_refusal_names_field_and_way_out(
    gateway: Gateway, key: str, path: str, body: Body, field: str, words: str
) -> None:
    reply = gateway.call("POST", path, body, key=key)
    assert reply.status in (403, 422), reply.text
    assert reply.error["details"]["field"] == field
    assert field in reply.error["message"]
    assert "participants" in reply.error["message"] or field == "role"
    assert words in reply.error["message"]


def _write(gateway: Gateway, key: str, path: str, when: Mapping[str, object]) -> Reply:
    message: Body = {"role": "user", "content": "x"}
    bodies: dict[str, Body] = {
        EVENTS: user_message("x"),
        f"{EVENTS}/batch": {"events": [user_message("x", **when)]},
        f"{SESSION}/events": message,
        f"{SESSION}/interactions": {"user_message": "x", "agent_response": "y"},
    }
    body = bodies[path] if "batch" in path else {**bodies[path], **when}
    return gateway.call("POST", path, body, key=key)


PATHS = (EVENTS, f"{EVENTS}/batch", f"{SESSION}/events", f"{SESSION}/interactions")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "when",
    [
        {"occurred_at": AT},
        {"timestamp": AT},
        {"timestamp": SECONDS},
        {"timestamp": AT, "occurred_at": SECONDS},
    ],
)
def test_request_timestamp_means_occurred_at(
    gateway: Gateway, key: str, path: str, when: Mapping[str, object]
) -> None:
    reply = _write(gateway, key, path, when)
    assert reply.status in (200, 201), reply.text
    body = gateway.call("GET", "/memories/list", key=key, query={"participants": ALICE}).body
    moments = {datetime.fromisoformat(event["occurred_at"]) for event in body["events"]}
    assert moments == {datetime(2026, 5, 8, 13, 56, tzinfo=UTC)}


@pytest.mark.parametrize("path", PATHS)
def test_request_with_two_different_times_is_refused(gateway: Gateway, key: str, path: str) -> None:
    reply = _write(gateway, key, path, {"timestamp": AT, "occurred_at": LATER})
    error = reply.body["results"][0]["error"] if "batch" in path else reply.error
    assert error["details"]["field"] == "timestamp"
    assert "occurred_at" in error["message"]
    assert reply.status == (200 if "batch" in path else 422)


def test_request_to_root_redirects_to_docs(gateway: Gateway) -> None:
    reply = gateway.call("GET", "/")
    assert (reply.status, reply.headers["Location"]) == (307, "docs")


@pytest.mark.parametrize(
    ("path", "place"),
    [("/prod/", "docs"), ("/prod", "prod/docs"), ("/memory/v2", "v2/docs"), ("/", "docs")],
)
def test_request_to_root_of_base_path_redirects_beside_it(
    gateway: Gateway, path: str, place: str
) -> None:
    from functions.admin.handler import lambda_handler

    event = from_file("query_event.json", gateway.key())
    event |= {"resource": "/", "path": "/", "pathParameters": None, "httpMethod": "GET"}
    event["multiValueQueryStringParameters"] = event["queryStringParameters"] = None
    event["requestContext"]["path"] = path
    handler: Any = lambda_handler
    answer = handler(event, LambdaContext("admin", 29))
    assert (answer["statusCode"], answer["headers"]["Location"]) == (307, place)
