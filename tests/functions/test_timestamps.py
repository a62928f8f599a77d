"""Whatever time a way of writing takes, every way of reading reads: none answers with a 5xx."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.graph_calls import WHO, entity, fact, topic
from tests.graph_files import FACT, file_with_patch, import_text, lines_of, rehash
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, Reply, ScratchDatabase, unique_name, user_message

EXTREMES = (
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+15:59", "0001-01-01T15:59:00+15:59"),
    *("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-14:00", "9999-12-31T08:00:00-15:59"),
    *("2026-05-08T12:00:00+16:00", "infinity", "2026-05-08", "2026-05-08T12:00:00"),
    *(-62135596800, 253402300799, 253402300799.9999999, 1778241600000, 1e300, 0, -1),
)
OFFSETS = st.sampled_from(("Z", "+00:00", "+15:59", "-15:59", "+16:00", "-23:59", "", "+05:30"))


def write_moment(moment: datetime, offset: str) -> str:
    """A time as a caller may write it."""
    return moment.isoformat() + offset


TIMES = st.one_of(
    st.builds(write_moment, st.datetimes(), OFFSETS),
    st.floats(min_value=-7e10, max_value=3e11),
    st.sampled_from(EXTREMES),
)
READINGS = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z")


def write(gateway: Gateway, key: str, at: Any) -> Iterator[tuple[str, Reply]]:
    """Each way in which a time comes in, once with this one."""
    who = {"participants": WHO, "speaker": WHO[0]}

    def post(path: str, **fields: Any) -> Reply:
        return gateway.call("POST", f"/api/v1/{path}", {**who, **fields}, key=key)

    name = unique_name()
    nodes = [fact(name, valid_from=at), entity(name), topic(name)]
    yield (
        "events",
        gateway.call(
            "POST",
            "/api/v1/events",
            user_message(f"Moved to {name}.", *WHO, occurred_at=at),
            key=key,
        ),
    )
    yield "nodes", post("graph/nodes", nodes=nodes)
    dated = {"type": "event", "title": name, "event_date": at}
    yield "event date", post("graph/nodes", nodes=[dated])
    stated = post("graph/nodes", nodes=[fact(name + "!"), entity(name), topic(name)]).body["nodes"]
    fact_id, entity_id, topic_id = (node["id"] for node in stated)
    invalidation = post(f"graph/nodes/{fact_id}/invalidate", reason="over", valid_from=at)
    yield "invalidation", invalidation
    link = {"edge": "entity_topic", "from_id": entity_id, "to_id": topic_id}
    yield "edges", post("graph/edges", edges=[{**link, "valid_from": at}])
    edges = post("graph/edges", edges=[link]).body["edges"]
    yield "end of an edge", post(f"graph/edges/{edges[0]['id']}/end", valid_to=at)
    yield "field", post(f"graph/topics/{topic_id}/fields/due", value=1, valid_from=at)
    for part in ("said_at", "valid_from", "valid_to"):
        lines = lines_of(file_with_patch("fact", name + part))
        said = lines[3]["says"][0]
        {"said_at": lines[3], "valid_from": said, "valid_to": said["patch"]}[part][part] = at
        yield f"import, {part}", import_text(gateway, key, rehash(lines))


def read(gateway: Gateway, key: str, base: ScratchDatabase) -> Iterator[tuple[str, Reply]]:
    """Every way of reading, also as of the first and the last moment, and with them as now."""
    who = {"participants": WHO}

    def get(path: str, **query: Any) -> tuple[str, Reply]:
        reply = gateway.call("GET", f"/api/v1/{path}", key=key, query={**who, **query})
        return f"{path} {query}", reply

    def post(path: str, **fields: Any) -> tuple[str, Reply]:
        return f"{path} {fields}", gateway.call(
            "POST", f"/api/v1/{path}", {**who, **fields}, key=key
        )

    rows = base.rows("select type, node_id from graph_nodes order by created_at desc limit 8")
    for kind, row_id in rows:
        node_id = f"{kind}:{row_id}"
        yield get(f"graph/nodes/{node_id}")
        yield get(f"graph/nodes/{node_id}/history")
        yield get(f"provenance/{node_id}")
        yield post("graph/traverse", node_id=node_id, hops=2)
        if kind == "topic":
            yield get(f"graph/topics/{node_id}/fields")
            yield get(f"graph/topics/{node_id}/fields/due")
    yield get("scopes")
    yield post("events/query")
    yield post("graph/exports")
    yield post("graph/conflicts", content=FACT)
    yield post("graph/analyze", content=FACT)
    for now in (None, *READINGS):
        at = {"now": now} if now else {}
        for question in ("moved yesterday", "in three weeks", "since last May"):
            yield post("recall", query=question, **at)
        yield post("context", query="where", **at)
        yield post("references/query", query="where", **at)
        as_of = {"as_of": now} if now else {}
        yield get("graph/nodes", valid_only="false", archived="true", limit=100, **as_of)
        for mode in ("semantic", "exact", "graph"):
            yield post("graph/search", query="Moved", mode=mode, **as_of)
    yield post("events/query", since=READINGS[0], until=READINGS[1])


@pytest.fixture
def key(gateway: Gateway) -> str:
    """A key of somebody who may read all that is written."""
    return gateway.key(rights=["read", "write", "admin"])


@settings(
    max_examples=2,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(EXTREMES)
@given(times=st.lists(TIMES, min_size=3, max_size=6))
def test_timestamp_accepted_on_write_is_readable(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, times: list[Any]
) -> None:
    for at in times:
        for name, reply in write(gateway, key, at):
            assert reply.status in (200, 201, 409, 422), (at, name, reply.text)
    fold_all(gateway, scratch_db)
    build(gateway)
    failures = {
        name: reply.text
        for name, reply in read(gateway, key, scratch_db)
        if reply.status not in (200, 201, 404)
    }
    assert failures == {}
