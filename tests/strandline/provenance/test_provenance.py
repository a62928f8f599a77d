"""Provenance: from an event up to what rests on it, and from a topic or a snapshot down to its
events."""

import uuid
from typing import Any

from tests.strandline.topics.snapshots import publish
from tests.strandline.topics.talks import converse, fold
from tests.support import Gateway, ScratchDatabase, user_message

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"


def test_provenance_links_event_and_topic(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    key = gateway.key(user=ALICE)
    talk = converse(gateway, key)
    fold(gateway, scratch_db)
    publish(scratch_db)

    def trace(row_id: str, **query: object) -> Any:
        reply = gateway.call("GET", f"/api/v1/provenance/{row_id}", key=key, query=query)
        assert reply.status == 200, reply.text
        return reply.body

    question = {"query": "Which paint for the buoy?"}
    answer = gateway.call("POST", "/api/v1/references/query", question, key=key).body
    root = answer["tree"]["scopes"][0]["topics"][0]
    buoy = root["topics"][0]
    edge = {"edges": [{"event_id": talk[0], "weight": 0.5}]}
    later = user_message("As said.", ALICE, HELPER, **edge)
    citing = gateway.call("POST", "/api/v1/events", later, key=key).body["event_id"]
    event = trace(talk[0])
    assert event["kind"] == "event"
    assert [topic["slot"] for topic in event["topics"]] == [buoy["slot"], root["slot"]]
    assert [chain["chain_id"] for chain in event["chains"]] == [buoy["slot"]]
    assert event["edges"] == [{"event_id": citing, "weight": 0.5}]
    assert [vector["space"] for vector in event["vectors"]] == ["minilm-l6-v2-int8/384"]
    assert trace(citing)["topics"] == []
    chain = trace(buoy["slot"])
    assert chain["kind"] == "chain"
    assert [e["event_id"] for e in chain["events"]] == talk[:4]
    assert [version["is_current"] for version in chain["chains"]] == [True]
    for topic_id in (root["slot"], root["node_id"]):
        topic = trace(topic_id)
        assert topic["kind"] == "topic"
        assert {e["event_id"] for e in topic["events"]} == set(talk[:12])
    assert [e["event_id"] for e in trace(buoy["node_id"])["events"]] == talk[:4]
    snapshot = trace(answer["snapshot"]["snapshot_id"])
    (tree,) = snapshot["scopes"]
    assert (tree["root_slot"], tree["cutoff"], tree["leaf_count"]) == (root["slot"], 12, 3)
    pages: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = trace(root["slot"], limit=5, **cursor)
        pages += [e["event_id"] for e in page["events"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert sorted(pages) == sorted(talk[:12])
    path = f"/api/v1/provenance/{buoy['slot']}"
    assert gateway.call("GET", path, key=key, query=cursor).status == 400
    assert gateway.call("GET", f"/api/v1/provenance/{uuid.uuid4()}", key=key).status == 404
    for row_id in (talk[0], root["slot"], root["node_id"], buoy["slot"]):
        other = gateway.call("GET", f"/api/v1/provenance/{row_id}", key=gateway.key(user=BOB))
        assert other.status == 404, row_id
    publish(scratch_db)
    assert trace(root["node_id"])["snapshot_version"] == 2
