"""Blocks, MCP, communities, nodes as of a time, and cursors: none shows what is erased, whether it
is a tombstone already or kept out of view by a mark."""

import base64
import json
from dataclasses import dataclass
from typing import Any

import pytest

from strandline.erasure import erase_events as erasing
from tests.mcp_calls import EVERYTHING, call_tool, post
from tests.strandline.erasure.erasure_calls import ALICE, CANARY, ERASURES, HELPER
from tests.strandline.log.block_calls import RAW, data_of, get, read_car
from tests.support import Gateway, Reply, ScratchDatabase, Tell

NODES = "/api/v1/graph/nodes"
LARGE = f"{CANARY} payload " * 5000
TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("recall", {"query": "When does my sister come?"}),
    ("context", {"query": "When does my sister come?"}),
    ("query_event_nodes", {"text": "sister"}),
    ("query_references", {"query": "sister"}),
    ("mie_query", {"query": "skippers", "mode": "exact"}),
    ("mie_list", {"node_type": "topic"}),
    ("mie_list", {"node_type": "fact"}),
)


@dataclass(frozen=True)
class Speech:
    """What alice said, and what rests on it."""

    sister: Any
    file: Any
    rests: Any
    """An event of the helper's that cites both."""
    skipper: str
    """An entity of alice's, merged into nils."""
    nils: str
    before_merge: str
    """A time."""


@dataclass(frozen=True)
class Reader:
    """Who reads all that there is on behalf of alice."""

    gateway: Gateway
    key: str
    speech: Speech

    def tool(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        return call_tool(self.gateway, name, arguments, key=self.key, participants=[ALICE])

    def resource(self, uri: str) -> str:
        options: dict[str, Any] = {"toolsets": EVERYTHING, "participants": [ALICE]}
        reply = post(self.gateway, "resources/read", {"uri": uri}, key=self.key, **options)
        contents = reply.body.get("result", {}).get("contents", [{}])
        return reply.text + base64.b64decode(contents[0].get("blob", "")).decode("latin-1")

    def read(self, path: str, **query: Any) -> Reply:
        return self.gateway.call("GET", path, key=self.key, query={"participants": ALICE, **query})

    def block(self, path: str, **query: Any) -> Reply:
        return get(self.gateway, self.key, path, participants=ALICE, **query)

    def ask(self, path: str, **fields: Any) -> Reply:
        body = {"participants": [ALICE], **fields}
        return self.gateway.call("POST", f"/api/v1/graph/{path}", body, key=self.key)

    def everything(self) -> dict[str, str]:
        """Answers, by what was asked."""
        speech = self.speech
        results = {
            f"{name} {arguments}": self.tool(name, arguments)[0] for name, arguments in TOOLS
        }
        for cid in (speech.sister["cid"], speech.file["blob"]["cid"], speech.rests["cid"]):
            for form in ("raw", "car"):
                reply = self.block(cid, format=form)
                data = data_of(reply) if reply.status == 200 else b""
                results[f"{form} {cid}"] = reply.text + data.decode("latin-1")
        for uri in (
            f"ipfs://{speech.sister['cid']}",
            f"memoria://memory/{speech.sister['cid']}",
            f"memoria://file/{speech.file['blob']['cid']}",
            "mie://context/recent",
        ):
            results[uri] = self.resource(uri)
        results["sessions"] = self.read("/api/v1/sessions").text
        results["session"] = self.gateway.call(
            "GET", f"/api/v1/sessions/{CANARY}-1", key=self.key
        ).text
        results["communities"] = self.read("/api/v1/graph/communities").text
        results["tenant"] = self.gateway.call("GET", "/api/v1/admin/communities", key=self.key).text
        then = {"as_of": speech.before_merge}
        results["nodes"] = self.read(NODES, **then).text
        results["node"] = self.read(f"{NODES}/{speech.skipper}", **then).text
        results["search"] = self.ask("search", query="Berg", mode="exact", **then).text
        walk = {"node_id": speech.skipper, "traversal": "related_facts"}
        results["traverse"] = self.ask("traverse", **walk, **then).text
        return results

    def shown(self) -> set[str]:
        """What still shows a canary."""
        return {name for name, text in self.everything().items() if CANARY in text.lower()}


def say(gateway: Gateway, tell: Tell, everyone: str, alice: str) -> Speech:
    """Fill a scope of alice's and her helper's."""
    who = {"participants": [ALICE, HELPER]}

    def write(key: str, path: str, **fields: Any) -> Any:
        reply = gateway.call("POST", f"/api/v1/graph/{path}", {**who, **fields}, key=key)
        assert reply.status == 201, reply.text
        return reply.body

    sister = tell(alice, f"My sister {CANARY} comes on Friday.", session_id=f"{CANARY}-1")
    file = tell(alice, LARGE, session_id=f"{CANARY}-2")
    link = {"edge": "fact_entity", "target": "skipper"}
    skipper = {"type": "entity", "name": f"{CANARY.title()} Berg", "ref": "skipper"}
    fact = {"type": "fact", "content": f"{CANARY} skippers the Petrel", "relationships": [link]}
    topics = [{"type": "topic", "name": f"{CANARY} {n}"} for n in range(2)]
    nodes = write(alice, "nodes", nodes=[skipper, fact, *topics])["nodes"]
    helped = {"role": "agent", "speaker": HELPER, "session_id": "kept"}
    nils = write(everyone, "nodes", speaker=HELPER, nodes=[{"type": "entity", "name": "Nils"}])
    time = tell(everyone, "The time is noted.", **helped)["recorded_at"]
    merge = {"from_id": nodes[0]["id"], "into_id": nils["nodes"][0]["id"]}
    write(alice, "merges", **merge)
    edges = [{"event_id": one["event_id"], "weight": 0.5} for one in (sister, file)]
    rests = tell(everyone, "It rests on both.", edges=edges, **helped)
    gateway.run_job("analytics", "acme")
    return Speech(sister, file, rests, nodes[0]["id"], nils["nodes"][0]["id"], time)


@pytest.mark.parametrize("by_mark", [False, True])
def test_erasure_hides_event_from_every_read(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
    by_mark: bool,
) -> None:
    alice = gateway.key(user=ALICE, rights=["read", "write", "erase"])
    speech = say(gateway, tell, eraser, alice)
    reader = Reader(gateway, eraser, speech)
    event = {"content": f"The {CANARY} is keyed.", "event_key": "the key", "speaker": ALICE}
    own: dict[str, Any] = {"key": alice, "participants": [ALICE, HELPER]}
    assert "Stored" in call_tool(gateway, "add", event, **own)[0]
    before = reader.everything()
    secrets = {name for name, text in before.items() if CANARY not in text.lower()}
    assert secrets == {f"raw {speech.rests['cid']}"}, "the reads would show it"
    etag = reader.block(speech.sister["cid"], format="raw").headers["Etag"]
    first = {path: reader.read(path, limit=1).body["next_cursor"] for path in page_through(speech)}
    more = reader.tool("mie_list", {"node_type": "topic", "limit": 1})[0].rpartition("cursor=")[2]

    if by_mark:
        monkeypatch.setattr(erasing, "EVENTS_AT_ONCE", 2)
    reply = gateway.call("POST", ERASURES, {"participant": ALICE}, key=alice)
    assert reply.status == 202, reply.text
    assert scratch_db.rows("select count(*) > 0 from erasure_marks") == [(by_mark,)]
    for _ in range(2):  # at once, and after the job
        assert reader.shown() == set()
        assert_blocks_are_gone(reader, etag)
        text, is_error = call_tool(gateway, "add", event, **own)
        assert (is_error, "was erased" in text, "do not repeat" in text) == (True, True, True)
        text, is_error = reader.tool("mie_list", {"node_type": "topic", "cursor": more})
        assert (is_error, "without a cursor" in text) == (True, True)
        for path, cursor in first.items():
            late = reader.read(path, limit=1, cursor=cursor)
            is_out_of_view = by_mark and "history" in path
            if late.status == 404 and is_out_of_view:
                continue
            assert (late.status, late.error["details"]["field"]) == (410, "cursor"), path
        gateway.run_job("eraser", "acme")
    assert scratch_db.rows("select count(*) from erasure_marks") == [(0,)]
    assert "Nils" in reader.read(NODES).text, "what others said is still there"
    fresh = reader.read("/api/v1/sessions", limit=1).body
    assert [one["session_id"] for one in fresh["sessions"]] == ["kept"]


def page_through(message: Speech) -> list[str]:
    """Lists of more than one page."""
    return [NODES, f"{NODES}/{message.nils}/history", "/api/v1/sessions", "/memories/list"]


def assert_blocks_are_gone(reader: Reader, etag: str) -> None:
    """A block that rests on others is there, and they are not: not by a path, not in a file."""
    speech = reader.speech
    assert read_car(data_of(reader.block(speech.rests["cid"], format="car")))[0] == [
        speech.rests["cid"]
    ]
    blocks = read_car(data_of(reader.block(speech.rests["cid"], format="car")))[1]
    assert [cid for cid, _ in blocks] == [speech.rests["cid"]]
    for place in range(2):
        reply = reader.block(f"{speech.rests['cid']}/edges/{place}/target", format="car")
        assert (reply.status, reply.error["code"]) == (410, "gone")
    for cid in (speech.sister["cid"], speech.file["blob"]["cid"]):
        path, query = f"/ipfs/{cid}", {"participants": ALICE, "format": "raw"}
        headers = {"If-None-Match": etag, "Accept": RAW}
        response = reader.gateway.call("GET", path, key=reader.key, query=query, headers=headers)
        assert response.status == 404, "not 304"
    assert reader.read(f"/file/{speech.file['blob']['cid']}").status == 404
    assert json.loads(reader.read(f"/memory/{speech.rests['cid']}").text)["edges"] != []
