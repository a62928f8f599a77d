"""Blocks as the trustless gateway specification has them, read by IPLD libraries that are not
ours."""

import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPMessage
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import dag_cbor
import pytest
from multiformats import CID, multihash

from strandline.client.errors import TooLargeError
from strandline.log.block_lookup import MAX_BYTES
from tests.strandline.client.conftest import HttpService, service
from tests.strandline.log.block_calls import CAR, RAW, data_of, get, read_car
from tests.support import Gateway, ScratchDatabase, Tell
from tests.uploads import EVENTS_PATH, cid_of, citing, upload_file

__all__ = ["service"]
ALICE, BOB = "user:alice", "user:bob"
PAYLOAD = b"\x00 a chart \xff" * 20


def links_of(cid: str, block: bytes) -> Iterator[str]:
    """The links of a block, in their order in it."""

    def find(node: object) -> Iterator[str]:
        if isinstance(node, CID):
            yield node.encode("base32")
        elif isinstance(node, dict):
            for value in cast("dict[str, object]", node).values():
                yield from find(value)
        elif isinstance(node, list):
            for value in cast("list[object]", node):
                yield from find(value)

    if CID.decode(cid).codec.name == "dag-cbor":
        yield from find(dag_cbor.decode(block))


def walk(cid: str, blocks: dict[str, bytes]) -> Iterator[str]:
    """All blocks below one, depth first, as often as a link leads there."""
    yield cid
    for link in links_of(cid, blocks[cid]):
        yield from walk(link, blocks)


@dataclass(frozen=True)
class Story:
    """Events that rest on each other: the report cites a payload's event and the decision; that one
    cites the payload's event too, and the question."""

    key: str
    question: str
    chart: str
    """The event that holds the payload."""
    decision: str
    report: str
    payload: str
    ids: dict[str, str]


@pytest.fixture
def story(gateway: Gateway, tell: Tell) -> Story:
    key = gateway.key(user=ALICE)
    question = tell(key, "Which chart holds?", ALICE)
    upload = upload_file(gateway, key, PAYLOAD, mime_type="image/png", name="chart.png")
    chart = gateway.call("POST", EVENTS_PATH, citing(upload["cid"], ALICE), key=key).body
    edges = [{"event_id": event["event_id"], "weight": 0.5} for event in (question, chart)]
    decision = tell(key, "The new one holds.", ALICE, edges=edges)
    edges = [{"event_id": event["event_id"], "weight": 1} for event in (chart, decision)]
    report = tell(key, "Reported.", ALICE, edges=edges)
    events = {"question": question, "chart": chart, "decision": decision, "report": report}
    return Story(
        key,
        **{name: event["cid"] for name, event in events.items()},
        payload=upload["cid"],
        ids={name: event["event_id"] for name, event in events.items()},
    )


def test_block_car_file_holds_all_linked_blocks(gateway: Gateway, story: Story) -> None:
    whole = get(gateway, story.key, story.report, format="car")
    roots, pairs = read_car(data_of(whole))
    blocks = dict(pairs)
    assert roots == [story.report]
    assert blocks[story.payload] == PAYLOAD
    assert [cid for cid, _ in pairs] == list(dict.fromkeys(walk(story.report, blocks)))
    assert len(blocks) == 5
    assert whole.headers["Content-Type"] == f"{CAR}; version=1; order=dfs; dups=n"
    assert whole.headers["Content-Disposition"] == f'attachment; filename="{story.report}.car"'
    assert whole.headers["X-Content-Type-Options"] == "nosniff"
    assert "Content-Location" not in whole.headers
    reply = get(gateway, story.key, story.report, format="car", car_dups="y")
    _, pairs = read_car(data_of(reply))
    assert [cid for cid, _ in pairs] == [*walk(story.report, blocks)]
    assert len(pairs) == 7, "the payload and its event twice"
    assert reply.headers["Content-Type"].endswith("dups=y")
    for scope in ("block", "entity"):
        alone = get(gateway, story.key, story.report, format="car", dag_scope=scope)
        assert [cid for cid, _ in read_car(data_of(alone))[1]] == [story.report]
        assert alone.headers["Etag"].startswith(f'W/"{scope}-')


def test_block_path_follows_links(gateway: Gateway, story: Story) -> None:
    block = dag_cbor.decode(data_of(get(gateway, story.key, story.report)))
    targets = [edge["target"].encode("base32") for edge in cast("Any", block)["edges"]]
    place = targets.index(story.chart)
    path = f"{story.report}/edges/{place}/target"
    roots, pairs = read_car(data_of(get(gateway, story.key, path)))
    assert roots == [story.chart]
    assert [cid for cid, _ in pairs] == [story.report, story.chart, story.payload]
    path += "/data/content"
    roots, pairs = read_car(data_of(get(gateway, story.key, path, dag_scope="block")))
    assert (roots, pairs[-1]) == ([story.payload], (story.payload, PAYLOAD))
    assert len(pairs) == 3
    ends = get(gateway, story.key, f"{story.report}/data/content", format="car")
    assert (ends.status, ends.error["code"]) == (501, "unsupported")
    for missing, segment in (
        ("nowhere", 1),
        ("edges/7/target", 2),
        ("edges/-1", 2),
        ("edges/x", 2),
    ):
        reply = get(gateway, story.key, f"{story.report}/{missing}", format="car")
        assert (reply.status, reply.error["details"]["segment"]) == (404, segment), missing
    assert get(gateway, story.key, f"{story.payload}/x", format="car").status == 404
    assert get(gateway, story.key, f"{story.report}/" + "edges/" * 65).status == 400


def test_block_raw_form_returns_payload_or_event(gateway: Gateway, story: Story) -> None:
    raw = get(gateway, story.key, story.payload, format="raw")
    assert (data_of(raw), raw.headers["Content-Type"]) == (PAYLOAD, RAW)
    assert raw.headers["Content-Disposition"] == f'attachment; filename="{story.payload}.bin"'
    event = data_of(get(gateway, story.key, story.chart))
    assert cid_of(event) != story.chart
    assert multihash.digest(event, "sha2-256") == CID.decode(story.chart).digest
    assert data_of(get(gateway, story.key, "bafkqaaa")) == b""
    probe = data_of(get(gateway, story.key, "bafkqaaa", format="car"))
    assert read_car(probe) == (["bafkqaaa"], [])
    reply = get(gateway, story.key, story.payload, format="car", entity_bytes="5:*")
    assert read_car(data_of(reply))[1] == [(story.payload, PAYLOAD)]
    beyond = f"{len(PAYLOAD)}:*"
    assert get(gateway, story.key, story.payload, format="car", entity_bytes=beyond).status == 400
    # of what is no row of bytes a range is ignored
    reply = get(gateway, story.key, story.report, format="car", entity_bytes=beyond)
    assert len(read_car(data_of(reply))[1]) == 1


@pytest.mark.parametrize(
    ("accept", "query", "kind"),
    [
        ("*/*", {}, RAW),
        (RAW, {}, RAW),
        (CAR, {}, f"{CAR}; version=1; order=dfs; dups=n"),
        (f"{CAR}; version=1; order=unk; dups=y", {}, f"{CAR}; version=1; order=dfs; dups=y"),
        (f"{CAR}; dups=y", {"car_dups": "n"}, f"{CAR}; version=1; order=dfs; dups=n"),
        (f"{CAR}; version=2, {RAW};q=0.5", {}, RAW),
        (f"{RAW};q=0.1, {CAR};q=0.9", {}, f"{CAR}; version=1; order=dfs; dups=n"),
        (f"{CAR};q=0, */*;q=0.1", {}, RAW),
        (RAW, {"format": "car"}, f"{CAR}; version=1; order=dfs; dups=n"),
        ("text/html", {"format": "raw"}, RAW),
        ("text/html", {}, 400),
        (f"{CAR}; version=2", {}, 400),
        (f"{CAR}; order=bfs", {}, 400),
        ("*/*", {"format": "tar"}, 422),
        ("*/*", {"format": "car", "car_version": "2"}, 422),
        ("*/*", {"format": "car", "dag_scope": "file"}, 422),
        ("*/*", {"format": "car", "entity_bytes": "0:"}, 422),
        ("*/*", {"format": ["raw", "car"]}, 422),
        ("*/*", {"format": "car", "dag_scope": ["all", "block"]}, 422),
    ],
)
def test_block_format_is_negotiated(
    gateway: Gateway, tell: Tell, accept: str, query: dict[str, Any], kind: str | int
) -> None:
    key = gateway.key(user=ALICE)
    cid = tell(key, "Heard.", ALICE)["cid"]
    reply = get(gateway, key, cid, accept, **query)
    assert kind == (reply.headers["Content-Type"] if reply.status == 200 else reply.status)
    if reply.status == 200 and "format" not in query:
        form = "raw" if kind == RAW else "car"
        assert reply.headers["Content-Location"].startswith(f"?format={form}")
    elif reply.status != 200:
        field = reply.error["details"]["field"]
        assert field in ("Accept", *(name.replace("_", "-") for name in query))


def test_block_content_location_leads_to_same_block(gateway: Gateway, tell: Tell) -> None:
    cid = tell(gateway.key(user=ALICE), "Heard.", ALICE)["cid"]
    reader = gateway.key(rights=("read", "admin"))
    for view in ({"everybody": "true"}, {"participants": ALICE}):
        first = gateway.call("GET", f"/ipfs/{cid}", query=view, key=reader)
        query = parse_qs(first.headers["Content-Location"].removeprefix("?"))
        again = gateway.call("GET", f"/ipfs/{cid}", query=query, key=reader)
        assert (again.status, again.headers["Etag"]) == (200, first.headers["Etag"])


def test_block_raw_form_refuses_path(gateway: Gateway, story: Story) -> None:
    for accept, query in ((RAW, {}), ("*/*", {"format": "raw"})):
        reply = get(gateway, story.key, f"{story.chart}/data/content", accept, **query)
        assert (reply.status, reply.error["details"]["field"]) == (400, "format")


def test_block_and_payload_are_hidden_from_others(
    gateway: Gateway, scratch_db: ScratchDatabase, story: Story, tell: Tell
) -> None:
    stranger = gateway.key(user=BOB)
    for cid in (story.report, story.payload, f"{story.chart}/data/content"):
        for query in ({}, {"format": "car"}):
            assert get(gateway, stranger, cid, **query).status == 404, cid
    shared = tell(story.key, "Both heard it.", ALICE, BOB, speaker=ALICE)["cid"]
    assert read_car(data_of(get(gateway, stranger, shared, format="car")))[0] == [shared]
    scratch_db.rows(
        "update events set erased_at = now(), content = null, cid = null where event_id = %s",
        story.ids["question"],
    )
    assert get(gateway, story.key, story.question).status == 404, "its CID is gone with it"
    rest = [
        cid for cid, _ in read_car(data_of(get(gateway, story.key, story.report, format="car")))[1]
    ]
    assert story.question not in rest
    assert len(rest) == 4
    block = dag_cbor.decode(data_of(get(gateway, story.key, story.decision)))
    targets = [edge["target"].encode("base32") for edge in cast("Any", block)["edges"]]
    path = f"{story.decision}/edges/{targets.index(story.question)}/target"
    reply = get(gateway, story.key, path)
    assert (reply.status, reply.error["code"]) == (410, "gone")


def test_block_of_large_payload_redirects(
    gateway: Gateway, service: HttpService, tell: Tell
) -> None:
    key = gateway.key(user=ALICE)
    data = bytes(MAX_BYTES + 1)
    upload = upload_file(gateway, key, data)
    event = gateway.call("POST", EVENTS_PATH, citing(upload["cid"], ALICE), key=key).body
    reply = get(gateway, key, upload["cid"], format="raw")
    assert (reply.status, reply.error["code"]) == (307, "too_large")
    with urllib.request.urlopen(reply.headers["Location"], timeout=10) as answer:  # noqa: S310
        assert answer.read() == data
        assert answer.headers["Content-Type"] == RAW
    for cid in (upload["cid"], event["cid"]):
        assert get(gateway, key, cid, format="car").status == 413
    alone = get(gateway, key, event["cid"], format="car", dag_scope="block")
    assert len(read_car(data_of(alone))[1]) == 1
    big, cid = "x" * 60_000, ""
    edges: list[dict[str, object]] = []
    for n in range(80):  # 4.8 MB, each citing the one before
        last = tell(key, f"{n} {big}", ALICE, edges=edges)
        edges = [{"event_id": last["event_id"], "weight": 1}]
        cid = str(last["cid"])
    assert get(gateway, key, cid, format="car").status == 413
    with service.client(user=ALICE) as memory:
        with pytest.raises(TooLargeError, match="GET /file/"):
            memory.block(upload["cid"])
        with pytest.raises(TooLargeError, match="dag-scope"):
            memory.dag(event["cid"], "data/content")


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    body: bytes
    headers: HTTPMessage


def test_block_head_has_length_and_unchanged_is_304(
    gateway: Gateway, service: HttpService, story: Story
) -> None:
    """Over HTTP: a HEAD has the length and no body; the same again is a 304, for readers alone."""
    address = urlsplit(service.url)

    def ask(method: str, path: str, key: str, tag: str | None = None) -> Answer:
        headers = {"X-API-Key": key} | ({} if tag is None else {"If-None-Match": tag})
        host, port = address.hostname or "", address.port or 80
        with closing(HTTPConnection(host, port, timeout=10)) as connection:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, response.read(), response.headers)

    stranger = gateway.key(user=BOB)
    for path in (story.report, f"{story.report}?format=car", f"{story.chart}/data/content"):
        got = ask("GET", f"/ipfs/{path}", story.key)
        head = ask("HEAD", f"/ipfs/{path}", story.key)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["Content-Length"] == str(len(got.body))
        assert head.headers["Etag"] == got.headers["Etag"]
        tag = got.headers["Etag"]
        same = ask("GET", f"/ipfs/{path}", story.key, f'"x", {tag}')
        assert (same.status, same.body, same.headers["Etag"]) == (304, b"", tag)
        assert ask("GET", f"/ipfs/{path}", story.key, '"x"').status == 200
        assert ask("GET", f"/ipfs/{path}", stranger, tag).status == 404
    for method in ("GET", "HEAD"):
        assert ask(method, "/ipfs/bafkqaaa", story.key).status == 200
        assert ask(method, "/ipfs/bafkqaaa", "none").status == 401
        assert ask(method, "/ipfs/bafkqaaa", gateway.key()).status == 422, "nobody reads"
