"""Fields of topics through the API: revised, read now and as of a time, repeated, refused, used."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from strandline.chains import store_recalls
from strandline.graph.fields import store_read
from strandline.graph.fields.store_read import MAX_SERVED
from tests.support import Gateway, Reply, ScratchDatabase

WHO = ["agent:helper", "user:ada"]
ADA, BO = "user:ada", "user:bo"


def state(gateway: Gateway, key: str, *names: str, who: list[str] = WHO) -> list[str]:
    """Topics of these names; gives their ids."""
    nodes = [{"type": "topic", "name": name} for name in names]
    body = {"participants": who, "nodes": nodes}
    reply = gateway.call("POST", "/api/v1/graph/nodes", body, key=key)
    assert reply.status == 201, reply.text
    return [node["id"] for node in reply.body["nodes"]]


def path_of(topic_id: str, field: str = "") -> str:
    path = f"/api/v1/graph/topics/{topic_id}/fields"
    return f"{path}/{quote(field, safe='%')}" if field else path


def revise(
    gateway: Gateway, key: str, path: str, value: object, request_key: str = "", **more: Any
) -> Reply:
    headers = {"Idempotency-Key": request_key} if request_key else {}
    body = {"participants": WHO, "value": value, **more}
    return gateway.call("POST", path, body, key=key, headers=headers)


def store(gateway: Gateway, key: str, path: str, value: object, **more: Any) -> Any:
    reply = revise(gateway, key, path, value, **more)
    assert reply.status == 201, reply.text
    return reply.body


def get(gateway: Gateway, key: str, path: str, **query: object) -> Any:
    reply = gateway.call("GET", path, key=key, query=query)
    assert reply.status == 200, reply.text
    return reply.body


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key(user=ADA)


@pytest.fixture
def petrel(gateway: Gateway, key: str) -> str:
    """The id of a topic."""
    (topic,) = state(gateway, key, "The Petrel")
    return topic


def test_topic_field_keeps_revisions_and_shows_newest(
    gateway: Gateway, key: str, petrel: str
) -> None:
    berth = path_of(petrel, "berth")
    first = store(gateway, key, berth, 14, field_type="number")
    recorded_at = first["recorded_at"]
    second = store(
        gateway, key, berth, {"pier": "B", "number": 17}, why_changed="The pier is repaired",
        impact_expected="A longer walk.",
    )  # fmt: skip
    assert (first["revision"], second["revision"]) == (1, 2)
    now = get(gateway, key, berth)
    assert now["current"] == now["history"][0]
    assert [item["value"] for item in now["history"]] == [{"pier": "B", "number": 17}, 14]
    assert (now["field_type"], now["revisions"], now["next_cursor"]) == ("number", 2, None)
    before = get(gateway, key, berth, as_of=recorded_at)
    assert (before["current"]["value"], before["revisions"]) == (14, 1)
    event = get(gateway, key, f"/api/v1/events/{second['event_id']}")
    assert (event["type"], event["speaker"], event["content"]) == (
        "statement",
        ADA,
        'The Petrel, berth: {"pier": "B", "number": 17}. Because: The pier is repaired.'
        " Expected: A longer walk.",
    )
    assert event["metadata"]["graph"]["revise"]["topic"] == "The Petrel"


def test_topic_field_value_and_history_are_of_one_moment(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    petrel: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another program revises the field between the statements of one read."""
    berth, list_fields = path_of(petrel, "berth"), store_read.list_fields
    store(gateway, key, berth, "pier A")

    def list_fields_then_revise(*arguments: Any) -> Any:
        rows = list_fields(*arguments)
        scratch_db.rows(
            "insert into topic_field_revisions select (jsonb_populate_record(r,"
            ' \'{"revision": 2, "value": "pier B"}\')).* from topic_field_revisions r'
        )
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(store_read, "list_fields", list_fields_then_revise)
        read = get(gateway, key, berth)
    assert (read["current"], read["revisions"]) == (read["history"][0], 1)
    assert [one["value"] for one in get(gateway, key, berth)["history"]] == ["pier B", "pier A"]


def test_topic_field_future_revision_waits_for_its_time(
    gateway: Gateway, key: str, petrel: str
) -> None:
    skipper = path_of(petrel, "skipper")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    store(gateway, key, skipper, "Nils", valid_from=tomorrow.isoformat())
    assert get(gateway, key, skipper)["current"] is None
    store(gateway, key, skipper, "Mara", valid_from="2020-01-01T00:00:00Z")
    store(gateway, key, skipper, "Nils", valid_from=tomorrow.isoformat())
    assert get(gateway, key, skipper)["current"]["value"] == "Mara"
    later = (tomorrow + timedelta(hours=1)).isoformat()
    assert get(gateway, key, skipper, as_of=later)["current"]["value"] == "Nils"
    assert len(get(gateway, key, skipper)["history"]) == 3


def test_topic_fields_are_listed_by_name(gateway: Gateway, key: str, petrel: str) -> None:
    for field, value in (("skipper", "Mara"), ("berth", None), ("Länge", 12.5), ("crew", ["x"])):
        store(gateway, key, path_of(petrel, field), value)
    path = path_of(petrel)
    whole = get(gateway, key, path)
    values = {item["field"]: item["current"]["value"] for item in whole["fields"]}
    assert values == {"Länge": 12.5, "berth": None, "crew": ["x"], "skipper": "Mara"}
    assert list(values) == sorted(values)
    assert (whole["name"], whole["salience"], whole["members"]) == ("The Petrel", 1.0, [petrel])
    pages = [get(gateway, key, path, limit=3)]
    pages.append(get(gateway, key, path, limit=3, after_field=pages[0]["next_after_field"]))
    assert [item for page in pages for item in page["fields"]] == whole["fields"]
    assert pages[1]["next_after_field"] is None
    minimal = get(gateway, key, path, detail="minimal")
    assert [(item["field"], item["current"]) for item in minimal["fields"]] == [
        (field, None) for field in sorted(values)
    ]


def test_topic_fields_of_same_name_topics_are_joined(
    gateway: Gateway, key: str, petrel: str
) -> None:
    crew = [*WHO, BO]
    (other,) = state(gateway, key, "the petrel.", who=crew)
    mine, ours = path_of(petrel, "berth"), path_of(other, "berth")
    store(gateway, key, mine, 14)
    store(gateway, key, ours, 17, participants=crew)
    store(gateway, key, path_of(petrel, "log"), "kept by Ada")
    for path in (mine, ours):
        body = get(gateway, key, path)
        assert [(item["value"], item["topic_id"]) for item in body["history"]] == [
            (17, other),
            (14, petrel),
        ]
    bos = gateway.key(user=BO)
    assert [item["value"] for item in get(gateway, bos, ours)["history"]] == [17]
    listing = get(gateway, bos, path_of(other))
    assert ([item["field"] for item in listing["fields"]], listing["members"]) == (
        ["berth"],
        [other],
    )
    assert gateway.call("GET", mine, key=bos).status == 404
    assert gateway.call("GET", path_of(petrel), key=bos).status == 404
    answer = revise(gateway, bos, mine, 1, participants=[BO])
    assert answer.status == 404, "not all of these can see the topic"
    answer = revise(gateway, key, mine, 1, participants=crew)
    assert answer.status == 404, "nor of these"
    answer = revise(gateway, key, ours, 1)
    assert (answer.status, answer.error["details"]["field"]) == (409, "participants")
    assert revise(gateway, bos, mine, 1).status == 403, "nobody writes for others alone"


def test_topic_field_refers_to_topic_by_edge(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, petrel: str
) -> None:
    north, south = state(gateway, key, "North harbour", "South harbour")
    harbour = path_of(petrel, "harbour")
    edges = (
        "select n.name, e.valid_to is null from graph_edges e join graph_nodes n"
        " on n.node_id = e.to_id where e.type = 'related' and e.label = 'harbour' order by n.name"
    )
    assert store(gateway, key, harbour, "N", ref_topic_id=north)["ref_topic_id"] == north
    assert store(gateway, key, harbour, "N, pier 2")["ref_topic_id"] == north, "left out: as before"
    assert scratch_db.rows(edges) == [("North harbour", True)]
    move = store(gateway, key, harbour, "S", ref_topic_id=south, why_changed="silt")
    assert move["ref_topic_id"] == south
    assert scratch_db.rows(edges) == [("North harbour", False), ("South harbour", True)]
    store(gateway, key, harbour, "N", ref_topic_id=north)
    assert scratch_db.rows(edges) == [("North harbour", True), ("South harbour", False)]
    assert store(gateway, key, harbour, "at sea", ref_topic_id=None)["ref_topic_id"] is None
    assert scratch_db.rows(edges) == [("North harbour", False), ("South harbour", False)]
    history = get(gateway, key, harbour)["history"]
    assert [item["ref_topic_id"] for item in history] == [None, north, south, north, north]


def test_topic_field_replay_changes_nothing(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, petrel: str
) -> None:
    berth = path_of(petrel, "berth")
    (north,) = state(gateway, key, "North harbour")
    value = {"z": 1, "a": [1.0, 10**20, None]}
    first = revise(gateway, key, berth, value, "k1", ref_topic_id=north)
    store(gateway, key, berth, 2, ref_topic_id=None)
    again = revise(gateway, key, berth, value, "k1", ref_topic_id=north)
    assert (again.status, again.text) == (201, first.text)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert first.body["value"] == value
    other = revise(gateway, key, berth, 3, "k1")
    assert (other.status, other.error["code"]) == (409, "key_conflict")
    assert [item["value"] for item in get(gateway, key, berth)["history"]] == [2, value]
    assert scratch_db.rows("select valid_to is null from graph_edges") == [(False,)]


@pytest.mark.parametrize(
    ("field", "body", "name"),
    [
        ("x" * 101, {}, "field"),
        ("a%2Fb", {}, "field"),
        ("a%00b", {}, "field"),
        ("berth", {"value": "x" * 16_000}, "value"),
        ("berth", {"field_type": "A Number"}, "field_type"),
        ("berth", {"valid_from": "soon"}, "valid_from"),
        ("berth", {"why_changed": ""}, "why_changed"),
        ("berth", {"impact_expected": "x" * 1001}, "impact_expected"),
        ("berth", {"ref_topic_id": f"topic:{uuid.uuid4()}"}, "ref_topic_id"),
        ("berth", {"ref_topic_id": "North harbour"}, "ref_topic_id"),
        ("berth", {"speaker": "user:carol"}, "speaker"),
        ("berth", {"participants": []}, "participants"),
        ("berth", {"salience": 9}, "salience"),
    ],
)
def test_topic_field_refusal_names_field(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    petrel: str,
    field: str,
    body: dict[str, Any],
    name: str,
) -> None:
    more: dict[str, Any] = {"value": 1, **body}
    answer = revise(gateway, gateway.key(), path_of(petrel, field), more.pop("value"), **more)
    assert (answer.status, answer.error["details"]["field"]) == (422, name), answer.text
    assert scratch_db.rows("select count(*) from topic_fields") == [(0,)]
    assert scratch_db.rows("select count(*) from events") == [(1,)]


def test_topic_field_needs_value_and_other_topic(gateway: Gateway, key: str, petrel: str) -> None:
    berth = path_of(petrel, "berth")
    answer = gateway.call("POST", berth, {"participants": WHO}, key=key)
    assert (answer.status, answer.error["details"]["field"]) == (422, "value")
    answer = revise(gateway, key, berth, 1, ref_topic_id=petrel)
    assert (answer.status, answer.error["details"]["field"]) == (422, "ref_topic_id")
    fact = {"participants": WHO, "nodes": [{"type": "fact", "content": "It leaks."}]}
    (node,) = gateway.call("POST", "/api/v1/graph/nodes", fact, key=key).body["nodes"]
    assert revise(gateway, key, path_of(node["id"], "berth"), 1).status == 404, "no topic"
    assert revise(gateway, key, berth, 1, ref_topic_id=node["id"]).status == 422
    assert gateway.call("GET", path_of(petrel, "mast"), key=key).status == 404, "no such field"


def test_topic_field_largest_values_fit_answer(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, petrel: str
) -> None:
    """More than the served cap, each nearly as large as may be: pages end by bytes."""
    berth = path_of(petrel, "berth")
    store(gateway, key, berth, "\u00e6" * 7400)
    extra = MAX_SERVED + 10
    scratch_db.rows(
        "insert into topic_field_revisions (tenant_id, node_id, field, revision, scope_id,"
        " participants, value, valid_from, event_id, recorded_at) select tenant_id, node_id,"
        " field, n, scope_id, participants, value, valid_from, event_id, recorded_at"
        " from topic_field_revisions, generate_series(2, %s) n",
        extra,
    )
    scratch_db.rows("update topic_fields set revision = %s", extra)
    numbers: list[int] = []
    query: dict[str, object] = {"limit": 500}
    while query:
        reply = gateway.call("GET", berth, key=key, query=query)
        assert reply.status == 200
        assert len(reply.text.encode()) < 5 * 1024 * 1024
        assert reply.body["revisions"] == extra
        numbers += [item["revision"] for item in reply.body["history"]]
        cursor = reply.body["next_cursor"]
        query = {"limit": 500, "cursor": cursor} if cursor else {}
    assert numbers == list(range(extra, 10, -1)), "the newest 500, none twice"
    wrong = gateway.call("GET", path_of(petrel), key=key, query={"cursor": "x"})
    assert wrong.status == 422
    wrong = gateway.call("GET", berth, key=key, query={"cursor": "x"})
    assert (wrong.status, wrong.error["details"]) == (400, {"field": "cursor"})


def test_topic_field_read_raises_salience(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    petrel: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for field in ("berth", "skipper"):
        store(gateway, key, path_of(petrel, field), 1)
    berth, all_fields = path_of(petrel, "berth"), path_of(petrel)
    get(gateway, key, berth)
    get(gateway, key, all_fields)
    get(gateway, key, all_fields, detail="minimal")  # gives no value
    admin = gateway.key(rights=("read", "admin"))
    get(gateway, admin, all_fields, everybody="true")  # who reads for nobody
    (first,) = get(gateway, key, berth, limit=1)["history"]
    assert scratch_db.rows("select event_ids[1]::text from recall_answers limit 1") == [
        (first["event_id"],)
    ]

    def fail(*_: object) -> None:
        raise RuntimeError("read only")

    with monkeypatch.context() as patch:
        patch.setattr(store_recalls, "record_recalled_events", fail)
        get(gateway, key, all_fields)  # what cannot be recorded is answered all the same
    gateway.sweep()
    read = get(gateway, key, all_fields)
    saliences = {item["field"]: item["salience"] for item in read["fields"]}
    assert saliences == {"berth": 1.3, "skipper": 1.1}
    assert read["salience"] == 1.2
    store(gateway, key, berth, 2)
    assert get(gateway, key, berth)["salience"] == 1.3, "a revision leaves it as it is"
    scratch_db.rows("update topic_fields set salience = 9.95")
    gateway.sweep()
    saliences = dict(scratch_db.rows("select field, salience from topic_fields"))
    assert saliences == {"berth": 10.0, "skipper": 10.0}, "10 at most"


def test_topic_field_revision_cites_unerased_statement(
    scratch_db: ScratchDatabase, gateway: Gateway, key: str, petrel: str
) -> None:
    revision = store(gateway, key, path_of(petrel, "berth"), 1)
    ((contents,),) = scratch_db.rows(
        "select count(*) from topic_field_revisions r join events e using (tenant_id, event_id)"
        " where e.type = 'statement' and e.metadata -> 'graph' -> 'revise' ->> 'field' = r.field"
    )
    assert contents == 1
    scratch_db.rows(
        "update events set erased_at = now(), content = null, cid = null where event_id = %s",
        revision["event_id"],
    )
    with pytest.raises(Exception, match="erased"):
        scratch_db.rows(
            "insert into topic_field_revisions (tenant_id, node_id, field, revision, scope_id,"
            " participants, value, valid_from, event_id, recorded_at) select tenant_id, node_id,"
            " field, 2, scope_id, participants, value, valid_from, event_id, recorded_at"
            " from topic_field_revisions"
        )


def test_topic_category_is_free_text(gateway: Gateway, key: str) -> None:
    topic = {"type": "topic", "name": "The Petrel", "category": "boat"}
    body = {"participants": WHO, "nodes": [{**topic, "description": "A cutter."}]}
    (node,) = gateway.call("POST", "/api/v1/graph/nodes", body, key=key).body["nodes"]
    read = get(gateway, key, f"/api/v1/graph/nodes/{node['id']}")
    assert read["properties"] == {"category": "boat", "description": "A cutter."}


def test_topic_field_replaced_value_is_not_recalled(
    gateway: Gateway, key: str, petrel: str
) -> None:
    berth = path_of(petrel, "berth")
    first = store(gateway, key, berth, "pier A, number fourteen")
    question = {"query": "Which berth has the Petrel?", "participants": [ADA]}

    def ask(**more: Any) -> tuple[list[str], str]:
        body = {**question, "min_relevance": 0, **more}
        hits = gateway.call("POST", "/api/v1/recall", body, key=key).body["hits"]
        block = gateway.call("POST", "/api/v1/context", {**question, **more}, key=key).body
        return [hit["text"] for hit in hits if "berth" in hit["text"]], block["text"]

    old, new = "The Petrel, berth: pier A, number fourteen.", "The Petrel, berth: pier B."
    assert ask()[0] == [old]
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    store(gateway, key, berth, "pier C", valid_from=tomorrow.isoformat())
    assert old in ask()[0], "it holds until then"
    store(gateway, key, berth, "pier B")
    texts, block = ask()
    assert old not in texts
    assert new in texts
    assert old not in block
    assert new in block
    texts, block = ask(as_of=first["recorded_at"])
    assert texts == [old]
    assert old in block
    listed = gateway.call("GET", "/memories/list", key=key, query={"participants": ADA})
    assert old in [event["content"] for event in listed.body["events"]], "the log keeps it"
