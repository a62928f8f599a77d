"""P7: an id of another's is as good as one that was never given, at every operation.

Made from the document: every operation and every id in its path, query, headers or body is asked
with A's id and with a random one of the same shape, by other tenants and by another user. What is
declared tomorrow is tried tomorrow; an id that nobody gave a sample of is a failure.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from functions.query import handler as query
from strandline.admin import certificates
from strandline.apidocs import error_responses, examples
from strandline.apidocs.examples import ExampleCall
from strandline.config import get_settings
from strandline.db.database import Caller
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, json_response
from strandline.jobs import store_runs
from strandline.log import read as log_read
from strandline.log.cid import compute_blob_cid, compute_block_cid
from strandline.sealing import Sealer
from strandline.tenants.store_audit import AuditContext
from tests import contract
from tests.chat_service import waiting_turn
from tests.contract import document, operations
from tests.support import KEY_SECRET, Gateway, Reply

ALICE, BOB = "user:alice", "user:bob"
COMMUNITIES = ("/api/v1/graph/communities", "/api/v1/admin/communities")
type Place = tuple[str, ...]
"""Where an id stands: path, query, header or body, and the names that lead there; [] is an item."""

# A name that ends in `_id` is an id; so are these.
IDS = {"cid", "cursor", "job", "tenant", "source_event_key", "Idempotency-Key"} | {
    "target",
    "invalidates",
    "field",
    "uuid",
    "into",
    "sona",
    "after",
}
# A file of a page is everybody's; every tenant counts its versions from 1; a path leads
# through a block that a CID names.
NO_IDS = {"file", "release", "version", "path"}
# What a field does not stand beside.
INSTEAD = {
    "blob": ("content", "parts", "model"),
    "cid": ("event_id", "sha256", "content"),
    "node_id": ("content",),
}
# What no two answers share, and names nothing of A's: asked of a random id it is there as well.
_FRESH = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+(Z|[+]00:00)"
    r"|X-Amz-\w+=[^&\"]*|\"(seq|last_seq|used|remaining)\": ?\d+"
    r"|\"(mark|read_token|request_id|x-amz-checksum-sha256)\": ?\"[^\"]*\""
)


def is_id(name: str) -> bool:
    return name not in NO_IDS and (name.endswith("_id") or name in IDS)


def places(operation: Mapping[str, Any]) -> Iterator[Place]:
    """Every place of an operation in which an id may stand."""
    for parameter in operation.get("parameters", []):
        if is_id(parameter["name"]):
            yield (parameter["in"], parameter["name"])
        elif parameter["in"] == "path":
            assert parameter["name"] in NO_IDS, f"what is the path's {parameter['name']}?"
    for media in operation.get("requestBody", {}).get("content", {}).values():
        for field_path in _within(media["schema"]):
            yield ("body", *field_path)


def _within(schema: Mapping[str, Any]) -> Iterator[Place]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from _within(document()["components"]["schemas"][name])
    for kind in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        yield from _within(kind)
    if "items" in schema:
        for field_path in _within(schema["items"]):
            yield ("[]", *field_path)
    for name, inner in schema.get("properties", {}).items():
        if is_id(name):
            yield (name,)
        for field_path in _within(inner):
            yield (name, *field_path)


@dataclass(frozen=True)
class Sample:
    """An id of A's own, and one like it that nobody was given."""

    own: Callable[[], str]
    other: Callable[[], str]


@dataclass(frozen=True)
class Stranger:
    """Who is not A."""

    key: str
    tenant: str
    user: str
    """For whom the key is, or who is spoken for."""


@dataclass
class World:
    """What A has, and who else there is."""

    gateway: Gateway
    samples: dict[str, list[Sample]]
    owner: str
    operator: str
    admin: str
    strangers: dict[str, "Stranger"] = field(default_factory=dict[str, "Stranger"])


def _uuid() -> str:
    return str(uuid.uuid4())


def _node_id() -> str:
    return f"fact:{uuid.uuid4()}"


def _topic_id() -> str:
    return f"topic:{uuid.uuid4()}"


def _elsewhere(cursor: str) -> str:
    """The same list's word for another row."""
    sealer = Sealer(KEY_SECRET)
    fields = sealer.unseal("cursor", "acme", cursor)
    assert isinstance(fields[2], str)
    fields[2] = _uuid()
    return sealer.seal("cursor", "acme", fields)


@pytest.fixture
def world(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> World:
    # a late model would make two answers differ
    monkeypatch.setenv("STRANDLINE_QUERY_VECTOR_SECONDS", "20")
    get_settings.cache_clear()
    owner = gateway.key(user=ALICE)
    message = {"participants": [ALICE], "role": "user", "session_id": "s-alice"}
    first = {**message, "content": "The buoy.", "source_event_key": "k-alice", "channel": "http"}
    event = gateway.call("POST", "/api/v1/events", first, key=owner).body
    reply_body = gateway.call("POST", "/api/v1/events", {**message, "content": "x"}, key=owner).body
    path = f"/api/v1/events/{reply_body['event_id']}"
    erasure = gateway.call("DELETE", path, key=gateway.key(user=ALICE, rights=("erase",))).body
    large = gateway.call("POST", "/api/v1/events", {**message, "content": "x " * 40_000}, key=owner)
    page = gateway.call("GET", "/memories/list", key=owner, query={"limit": 1}).body
    entity = {"type": "entity", "name": "Rain", "ref": "rain"}
    about_rain = {"edge": "fact_entity", "target": "rain"}
    fact = {"type": "fact", "content": "It rains.", "relationships": [about_rain]}
    stated = {"participants": [ALICE], "nodes": [fact, entity]}
    node, _ = gateway.call("POST", "/api/v1/graph/nodes", stated, key=owner).body["nodes"]
    link = {"edge": "RELATES_TO", "target": "rain"}
    topics: list[dict[str, Any]] = [
        {"type": "topic", "name": "rain", "ref": "rain"},
        {"type": "topic", "name": "rains", "relationships": [link]},
    ]
    body = {"participants": [ALICE], "nodes": topics}
    graph = gateway.call("POST", "/api/v1/graph/nodes", body, key=owner).body
    rain, rains = (topic["id"] for topic in graph["nodes"])
    body = {"participants": [ALICE], "from_id": rains, "into_id": rain}
    merge_id = gateway.call("POST", "/api/v1/graph/merges", body, key=owner).body["merge_id"]
    about = {"participants": [ALICE], "nodes": [{"type": "topic", "name": "The weather"}]}
    (topic,) = gateway.call("POST", "/api/v1/graph/nodes", about, key=owner).body["nodes"]
    fields = f"/api/v1/graph/topics/{topic['id']}/fields"
    contents = {"participants": [ALICE], "value": "rain"}
    assert gateway.call("POST", f"{fields}/today", contents, key=owner).status == 201
    gateway.run_job("analytics", "acme")
    community = gateway.call("GET", COMMUNITIES[0], key=owner).body["communities"][0]
    admin = gateway.key("acme", rights=("read", "write", "admin"))
    whole = gateway.call("GET", COMMUNITIES[1], key=admin).body["communities"][0]
    options = {"name": "Harbour master"}
    sona = gateway.call("POST", "/api/v1/sonas", options, key=owner).body["uuid"]
    push = {"event_id": event["event_id"]}
    act = gateway.call("POST", f"/api/v1/sonas/{sona}/acts", push, key=owner).body["act_id"]
    turn_id = waiting_turn(gateway, ALICE)
    random_cursor = _elsewhere(page["next_cursor"])
    alices_key = gateway.new_key("acme", ALICE)

    access = gateway.database.connect_as(Caller.background("acme"))
    entry = certificates.add_certificate(
        access, AuditContext("a test"), subject="CN=alice,O=Acme", user=ALICE
    )
    with access.transaction():
        job_id = store_runs.queue_job_for_run(access, "archiver", "a run", datetime.now(UTC))

    def use_of(name: str) -> Callable[[], str]:
        """One of A's for each asking, since a stranger may make it a name of its own as well."""

        def make() -> str:
            value = _uuid()
            mine = {**first, "source_event_key": _uuid(), name: value}
            assert gateway.call("POST", "/api/v1/events", mine, key=owner).status == 201
            return value

        return make

    def is_(own: str, other: Callable[[], str]) -> Sample:
        return Sample(lambda: own, other)

    tenant = is_("acme", lambda: f"t-{uuid.uuid4().hex}")
    samples = {
        "event_id": [is_(event["event_id"], _uuid)],
        "scope_id": [is_(event["scope_id"], _uuid)],
        "row_id": [is_(event["event_id"], _uuid)],
        "erasure_id": [is_(erasure["erasure_id"], _uuid)],
        **{
            n: [is_(node["id"], _node_id)]
            for n in ("node_id", "target", "invalidates", "replacement_id")
        },
        **{
            n: [is_(rain, lambda: f"topic:{uuid.uuid4()}")] for n in ("from_id", "to_id", "into_id")
        },
        **{n: [is_(sona, _uuid)] for n in ("uuid", "into", "sona")},
        "after": [is_(act, _uuid)],
        "turn_id": [is_(turn_id, _uuid)],
        "edge_id": [is_(graph["edges"][0]["id"], _uuid)],
        "merge_id": [is_(merge_id, _uuid)],
        **{n: [is_(topic["id"], _topic_id)] for n in ("topic_id", "ref_topic_id")},
        "field": [is_("today", lambda: f"field {uuid.uuid4().hex}")],
        "community_id": [is_(one["community_id"], _uuid) for one in (community, whole)],
        "cid": [
            is_(event["cid"], lambda: compute_block_cid(uuid.uuid4().bytes)),
            is_(large.body["blob"]["cid"], lambda: compute_blob_cid(uuid.uuid4().bytes)),
            is_(large.body["cid"], lambda: compute_block_cid(uuid.uuid4().bytes)),
        ],
        "session_id": [Sample(use_of("session_id"), _uuid)],
        "cursor": [is_(page["next_cursor"], lambda: random_cursor)],
        "key_id": [is_(alices_key.key_id, lambda: uuid.uuid4().hex)],
        "certificate_id": [is_(str(entry.certificate_id), _uuid)],
        "job": [is_(str(job_id), _uuid)],
        "tenant": [tenant],
        "tenant_id": [tenant],
        "user_id": [is_(ALICE, lambda: f"user:{_uuid()}")],
        "agent_id": [is_("agent:helper", lambda: f"agent:{_uuid()}")],
        "source_event_key": [Sample(use_of("source_event_key"), _uuid)],
        "Idempotency-Key": [Sample(use_of("source_event_key"), _uuid)],
    }
    operator = gateway.key("operations", rights=("operator",))
    stage_world = World(gateway, samples, owner, operator, admin)
    stage_world.strangers = {
        "another user": Stranger(gateway.key(user=BOB), "acme", BOB),
        "another tenant's user of that name": Stranger(
            gateway.key("globex", user=ALICE), "globex", ALICE
        ),
        "another tenant's admin": Stranger(
            gateway.key("globex", rights=("read", "write", "admin")), "globex", BOB
        ),
    }
    for stranger in stage_world.strangers.values():
        mine = {"participants": [stranger.user], "role": "user", "content": "Mine."}
        assert gateway.call("POST", "/api/v1/events", mine, key=stranger.key).status == 201
    return stage_world


def place_value(example: ExampleCall, place: Place, value: str, who: str) -> ExampleCall:
    """A call as its example has it, on behalf of `who`, with `value` at this place; without the
    example's keys and session, by which a second call would meet the first, and without edges that
    are found, of which the first is one for the second."""
    part, *names = place
    pattern = r', "(source_event_key|session_id)": "[^"]*"'
    text = re.sub(pattern, "", json.dumps(example.body))
    body = json.loads(text.replace(ALICE, who))
    if example.operation == "POST /api/v1/insert":
        body["recall"] = {"min_relevance": 1}
    params = {k: who if k == "participants" else v for k, v in example.query.items()}
    copy = replace(example, body=body, query=params, headers={})
    if part == "path":
        return replace(copy, path={**example.path, names[0]: value})
    if part == "query":
        return replace(copy, query={**params, names[0]: value})
    if part == "header":
        return replace(copy, headers={names[0]: value})
    _put(body, names, value)
    return replace(copy, body=body)


def _put(body: Any, names: list[str], value: str) -> None:
    """Set what the names lead to, and drop what cannot stand beside it."""
    name, *rest = names
    if name == "[]":
        inner = cast("list[Any]", body)
        if not inner:
            inner.append({})
        _put(inner[0], rest, value)
        return
    for beside in INSTEAD.get(name, ()):
        body.pop(beside, None)
    if not rest:
        body[name] = value
        return
    body[name] = body.get(name) or ([] if rest[0] == "[]" else {})
    _put(body[name], rest, value)


def ask(gateway: Gateway, example: ExampleCall, key: str) -> Reply:
    method, path = example.operation.split()
    path = contract.fill_path(path, example.path)
    query, headers = dict(example.query), example.headers
    return gateway.call(method, path, example.body, key=key, query=query, headers=headers)


def plain(reply: Reply, value: str) -> tuple[int, Mapping[str, str], str]:
    """What an answer says, but for the id that was asked for and what no two answers share."""

    def without(text: str) -> str:
        return _FRESH.sub("~", text.replace(value, "(the id)"))

    headers = {name: without(header) for name, header in reply.headers.items()}
    return reply.status, headers, without(reply.text)


def try_everywhere(world: World, settings: Mapping[str, Any]) -> int:
    """Ask for A's ids and for random ones, everywhere. Gives how many pairs were compared. Raises
    AssertionError where they differ, and for an id that has no sample."""
    pairs = 0
    first = {example.operation: example for example in reversed(examples.load_examples())}
    # What a stranger begins to upload is the stranger's own from then on.
    for name, operation in sorted(settings.items(), key=lambda item: item[0].endswith("/uploads")):
        for place in places(operation):
            assert place[-1] in world.samples, f"{name}: give a sample of {place[-1]}"
            for sample in world.samples[place[-1]]:
                for who, stranger in world.strangers.items():
                    own, other = sample.own(), sample.other()
                    if own in (stranger.tenant, stranger.user):
                        continue  # theirs as well
                    result, never = (
                        plain(_ask(world, first[name], place, value, stranger), value)
                        for value in (own, other)
                    )
                    assert result == never, f"{who} at {name}, {place}"
                    pairs += 1
    return pairs


def _ask(world: World, example: ExampleCall, place: Place, value: str, by: Stranger) -> Reply:
    return ask(world.gateway, place_value(example, place, value, by.user), by.key)


def test_bola_foreign_id_equals_unknown_id_everywhere(world: World) -> None:
    pairs = try_everywhere(world, operations())
    print(f"\n{pairs} pairs of calls, alike", end="")
    assert pairs > 100


def test_bola_owner_finds_each_sampled_id(world: World) -> None:
    """Or all of it would be alike for another reason: A and the operator find what others miss."""
    first = {example.operation: example for example in reversed(examples.load_examples())}
    for name, operation in operations().items():
        method = name.split()[0]
        for place in places(operation):
            if method != "GET" or place[0] != "path":
                continue
            key = world.operator if "/admin/" in name else world.owner
            is_tenants = "/admin/communities" in name
            key = world.admin if "/admin/jobs" in name or is_tenants else key
            names = set(error_responses.find_path_parameters(name)) - NO_IDS
            own = {n: world.samples[n][0].own() for n in names}
            if name == "GET /file/{cid}":
                own = {"cid": world.samples["cid"][1].own()}
            if "{path+}" in name:
                own = {"cid": world.samples["cid"][2].own(), "path": "data/content"}
            if is_tenants:
                own = {"community_id": world.samples["community_id"][1].own()}
            call = replace(place_value(first[name], place, own[place[-1]], ALICE), path=own)
            assert ask(world.gateway, call, key).status in (200, 307), (name, place)
            call = replace(call, path={**own, place[-1]: world.samples[place[-1]][0].other()})
            assert ask(world.gateway, call, key).status == 404, (name, place)


def test_bola_check_finds_route_without_view(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(request: Request) -> Response:
        access = request.resources.database.connect_as(Caller("acme", ()), request.deadline)
        return json_response(log_read.get_event(access, request.path_id("event_id")))

    name = "GET /api/v1/events/{event_id}"
    monkeypatch.setitem(query.ROUTES, name, replace(query.ROUTES[name], handler=careless))
    with pytest.raises(AssertionError, match="another user at GET /api/v1/events"):
        try_everywhere(world, {name: operations()[name]})


def test_bola_check_finds_new_kind_of_id(world: World) -> None:
    """In a path, in a query and deep in a body."""
    name = "POST /api/v1/recall"
    old = operations()[name]
    for place in ("path", "query"):
        new = {**old, "parameters": [{"name": "persona_id", "in": place}]}
        with pytest.raises(AssertionError, match="give a sample of persona_id"):
            try_everywhere(world, {name: new})
    with pytest.raises(AssertionError, match="what is the path's colour"):
        try_everywhere(world, {name: {"parameters": [{"name": "colour", "in": "path"}]}})
    items: dict[str, Any] = {"type": "array", "items": {"properties": {"persona_id": {}}}}
    body: dict[str, Any] = {"content": {"x": {"schema": {"properties": {"deep": items}}}}}
    with pytest.raises(AssertionError, match="give a sample of persona_id"):
        try_everywhere(world, {name: {"requestBody": body}})
