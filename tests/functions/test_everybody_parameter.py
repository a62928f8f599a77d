"""A read names on whose behalf it asks: an admin that means everybody of the tenant says so.

Made from the document: every operation that reads is asked, what is declared tomorrow as well."""

import functools
from collections.abc import Mapping
from typing import Any

from strandline.apidocs import examples
from strandline.apidocs.examples import ExampleCall
from tests import contract
from tests.mcp_calls import call_tool
from tests.support import Gateway, Reply, Tell

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
RECALL, CONTEXT, ERASURES = "/api/v1/recall", "/api/v1/context", "/api/v1/erasures"
OTHERS = {
    "GET /api/v1/usage",  # counts of the tenant
    "GET /sonas/list",  # names of the writer's own
    "GET /api/v1/sessions/{session_id}",  # all of a session is on behalf of its participants
    "GET /api/v1/sessions/{session_id}/analysis/heat",
    "GET /api/v1/sessions/{session_id}/analysis/topics",
    "GET /api/v1/sessions/{session_id}/context",
    "GET /api/v1/sessions/{session_id}/segments",
    "POST /api/v1/sessions/{session_id}/context/search",
}
"""What takes the right to read, and no participants or those of a session."""


@functools.cache
def reads() -> dict[str, ExampleCall]:
    """An example of each operation that takes the right to read and is not one of `OTHERS`."""
    routes = {name: route for module in contract.HANDLERS for name, route in module.ROUTES.items()}
    names = {name for name, route in routes.items() if route.right == "read"} - OTHERS
    calls = {call.operation: call for call in examples.load_examples()}
    return {name: calls[name] for name in names}


def ask(gateway: Gateway, name: str, key: str, **query: object) -> Reply:
    """Ask an operation without its example's participants, and with this query string."""
    call = reads()[name]
    method, _, path = name.partition(" ")
    return gateway.call(
        method,
        contract.fill_path(path, call.path),
        _without_participants(call.body),
        key=key,
        query={**_without_participants(call.query), **query},
    )


def _without_participants(fields: Mapping[str, Any] | None) -> Any:
    hidden = ("participants", "everybody", "session_id")
    return fields and {n: value for n, value in fields.items() if n not in hidden}


def test_everybody_read_needs_explicit_parameter(gateway: Gateway) -> None:
    admin = gateway.key(rights=("read", "write", "admin"))
    bound_admin = gateway.key(user=ALICE, rights=("read", "write", "admin"))
    refused = (gateway.key(), gateway.key(user=ALICE), bound_admin)
    assert len(reads()) > 35
    for name in reads():
        reply = ask(gateway, name, admin)
        assert (name, reply.status, reply.error["details"]) == (
            name,
            422,
            {"field": "participants"},
        )
        assert "`?everybody=true`" in reply.error["message"]
        assert ask(gateway, name, admin, everybody="false").status == 422, name
        both = ask(gateway, name, admin, everybody="true", participants=ALICE)
        assert (name, both.status, both.error["details"]) == (name, 422, {"field": "everybody"})
        for taken in (
            ask(gateway, name, admin, everybody="true"),
            ask(gateway, name, admin, participants=ALICE),
            ask(gateway, name, bound_admin),
        ):
            assert taken.status not in (403, 422), (name, taken.text)
        for key in refused:
            refusal = ask(gateway, name, key, everybody="true")
            assert (name, refusal.status) == (name, 403)
            assert refusal.error["details"] == {"field": "everybody"}


def test_everybody_parameter_is_documented_for_each_read() -> None:
    def takes(operation: Mapping[str, Any], name: str) -> bool:
        return any(p["name"] == name for p in operation.get("parameters", ()) if p["in"] == "query")

    operations = contract.operations()
    assert {name for name in operations if takes(operations[name], "everybody")} == {*reads()}
    session_context = "GET /api/v1/sessions/{session_id}/context"
    named = {name for name in operations if takes(operations[name], "participants")}
    assert named - {session_context} == {*reads()}


def test_everybody_read_by_admin_sees_all_and_is_audited(gateway: Gateway, tell: Tell) -> None:
    writer, admin = gateway.key(), gateway.key(rights=("admin",))
    events = {
        tell(writer, f"{name} likes herring.", name, HELPER)["event_id"] for name in (ALICE, BOB)
    }
    body = {"query": "Who likes herring?"}
    hits = gateway.call("POST", RECALL, body, key=admin, query={"everybody": "true"}).body["hits"]
    assert {hit["event_id"] for hit in hits} == events
    text = gateway.call("POST", CONTEXT, body, key=admin, query={"everybody": "true"}).body["text"]
    assert "user:alice likes" in text
    assert "user:bob likes" in text
    operator = gateway.key(tenant="ops", rights=("operator",))
    entries = gateway.call("GET", "/api/v1/admin/tenants/acme/audit", key=operator).body["entries"]
    calls = [entry["route"] for entry in entries if entry["route"].startswith("POST ")]
    assert calls == [f"POST {CONTEXT}", f"POST {RECALL}"]


def test_everybody_is_refused_for_session_context(gateway: Gateway) -> None:
    admin = gateway.key(rights=("read", "write", "admin"))
    session = {"session_id": "dock", "participants": [ALICE, HELPER]}
    assert gateway.call("POST", "/api/v1/sessions", session, key=admin).status == 201
    path = "/api/v1/sessions/dock/context"
    assert gateway.call("GET", path, key=admin).status == 200
    assert gateway.call("GET", path, key=admin, query={"everybody": "true"}).status == 422
    body = {"session_id": "dock"}
    assert gateway.call("POST", CONTEXT, body, key=admin).status == 200
    reply = gateway.call("POST", CONTEXT, body, key=admin, query={"everybody": "true"})
    assert (reply.status, reply.error["details"]) == (422, {"field": "everybody"})


def test_everybody_is_implied_for_eraser_listing_erasures(gateway: Gateway) -> None:
    eraser = gateway.key(rights=("read", "erase"))
    assert gateway.call("GET", ERASURES, key=eraser).status == 200
    admin = gateway.key(rights=("admin", "erase"))
    assert gateway.call("GET", ERASURES, key=admin, query={"everybody": "true"}).status == 200


def test_everybody_in_mcp_tool_is_set_by_call_or_connection(gateway: Gateway, tell: Tell) -> None:
    writer, admin = gateway.key(), gateway.key(rights=("admin",))
    for name in (ALICE, BOB):
        tell(writer, f"{name} likes herring.", name, HELPER)
    question = {"query": "Who likes herring?"}
    for tool in ("recall", "context", "query_references"):

        def call(key: str, tool: str = tool, *, whole: bool = False, **more: Any) -> str:
            options = {"everybody": True} if whole else {}
            text, is_error = call_tool(gateway, tool, {**question, **more}, key=key, **options)
            assert is_error == ("likes herring" not in text), text
            return text

        assert "`everybody`: true" in call(admin)
        assert "everybody" not in call(writer)
        for text in (call(admin, everybody=True), call(admin, whole=True)):
            assert "user:alice likes" in text
            assert "user:bob likes" in text
        assert "user:bob likes" not in call(admin, whole=True, participants=[ALICE])
        assert "everybody" in call(admin, everybody=True, participants=[ALICE])
        assert "everybody" in call(writer, everybody=True)
        assert "participants" in call(admin, whole=True, everybody=False)
