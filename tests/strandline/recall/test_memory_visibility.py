"""Whose memory a read shows: two agents of one user, with and without `agents_share`; two users,
never. And how a session's context widens to other scopes, or narrows to the session."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from strandline.embeddings.embedder import Embedder
from strandline.participants import derive_scope_id
from tests.chains import add_chain
from tests.support import Gateway, ScratchDatabase

SESSIONS = "/api/v1/sessions"
ALICE, BOB, HELPER, PILOT = "user:alice", "user:bob", "agent:helper", "agent:pilot"
type Tell = Callable[..., Any]
type Keys = Mapping[str, str]

with_and_without = pytest.mark.parametrize("share", [False, True], ids=["alone", "share"])
EVERY_KEY = ("alice", "anyone")
"""One of a user, and one of nobody's, which names any."""


@dataclass(frozen=True)
class World:
    """Conversations of two users with two agents; each is one event, one session and one chain,
    all of one name."""

    gateway: Gateway
    base: ScratchDatabase
    keys: Keys
    events: Mapping[str, str]
    """Event ids by name."""

    def read(self, who: str, method: str, path: str, body: object = None, **query: object) -> Any:
        """The body of a read that is answered."""
        reply = self.gateway.call(method, path, body, key=self.keys[who], query=query)
        assert reply.status == 200, reply.text
        return reply.body

    def context(self, who: str, session: str, **query: object) -> tuple[list[str], set[str]]:
        """A context's events, newest first, and its chains."""
        body = self.read(who, "GET", f"{SESSIONS}/{session}/context", **query)
        recent = [row["event"]["content"] for row in body["recent"]]
        return recent, {chain["topic"] for chain in body["chains"]}

    def search(self, who: str, session: str, **more: object) -> set[str]:
        """The chains that a search finds, whatever their likeness."""
        query = {"query": "the buoy", "similarity_threshold": 0.0, "min_relevance": 0, **more}
        body = self.read(who, "POST", f"{SESSIONS}/{session}/context/search", query)
        return {hit["chain"]["topic"] for hit in body["hits"]}

    def everything(self, who: str, *names: str) -> list[set[str]]:
        """The events that each root route shows on behalf of `names`."""
        query: dict[str, Any] = {"participants": list(names)} if names else {}
        question = {"query": "the buoy", "include": "full", "min_relevance": 0, **query}
        body = self.read(who, "POST", "/api/v1/recall", question)
        tree = self.read(who, "POST", "/api/v1/events/query", query)
        answer = self.read(who, "GET", "/memories/list", **query)
        sessions = self.read(who, "GET", SESSIONS, **query)
        return [
            {hit["event"]["session_id"] for hit in body["hits"]},
            {e["session_id"] for scope in tree["scopes"] for e in scope["events"]},
            {event["session_id"] for event in answer["events"]},
            {session["session_id"] for session in sessions["sessions"]},
        ]


WHO = {
    "alice-helper": (ALICE, HELPER),
    "alice-pilot": (ALICE, PILOT),
    "both-pilot": (ALICE, BOB, PILOT),
    "bob-helper": (BOB, HELPER),
    "agents": (HELPER, PILOT),
}
"""Who talks in which conversation, oldest first."""
ALICES = {"alice-helper", "alice-pilot", "both-pilot"}


@pytest.fixture
def world(
    gateway: Gateway, scratch_db: ScratchDatabase, embedder: Embedder, tell: Tell, share: bool
) -> World:
    """Its tenant has `agents_share` as the test's `share` says."""
    keys = {"alice": gateway.key(user=ALICE), "bob": gateway.key(user=BOB)}
    keys |= {"anyone": gateway.key(), "admin": gateway.key(rights=["admin"])}
    scratch_db.rows("update tenants set agents_share = %s", share)
    events = dict[str, str]()
    for name, who in WHO.items():
        more = {"session_id": name, "role": "agent" if name == "agents" else "user"}
        more |= {"speaker": who[0]}
        receipt = tell(keys["anyone"], f"{name}: the buoy", *who, **more)
        events[name] = receipt["event_id"]
        add_chain(gateway, scratch_db, [events[name]], topic=name, embedder=embedder)
    return World(gateway, scratch_db, keys, events)


# two agents of one user --------------------------------------------------------------------------


@with_and_without
def test_memory_visibility_follows_agents_share(world: World, share: bool) -> None:
    own, all_of_alice = {"alice-pilot"}, [f"{name}: the buoy" for name in reversed(list(ALICES))]
    for who in EVERY_KEY:
        for query in ({}, {"query": "the buoy"}):
            recent, chains = world.context(who, "alice-pilot", **query)
            assert chains == (ALICES if share else own)
            assert sorted(recent) == (sorted(all_of_alice) if share else ["alice-pilot: the buoy"])
        assert world.search(who, "alice-pilot") == (ALICES if share else own)
        for result in world.everything(who, ALICE, PILOT):
            assert result == (ALICES if share else {"alice-pilot", "both-pilot"})
        event = f"/api/v1/events/{world.events['alice-helper']}"
        params = {"participants": [ALICE, PILOT]}
        reply = world.gateway.call("GET", event, key=world.keys[who], query=params)
        assert reply.status == (200 if share else 404)


@with_and_without
def test_memory_visibility_by_user_spans_agents(world: World, share: bool) -> None:
    """With the same answer, whether the tenant's agents share or not."""
    for who in EVERY_KEY:
        for query in ({}, {"query": "the buoy"}):
            recent, chains = world.context(who, "alice-helper", participants=ALICE, **query)
            assert chains == ALICES
            assert recent == [
                f"{n}: the buoy" for n in ("both-pilot", "alice-pilot", "alice-helper")
            ]
        assert world.search(who, "alice-helper", participants=[ALICE]) == ALICES
        assert all(result == ALICES for result in world.everything(who, ALICE))
        (newest,), _ = world.context(who, "alice-helper", participants=ALICE, limit=1)
        assert newest == "both-pilot: the buoy"
        _, latest = world.context(who, "alice-helper", participants=ALICE, chains=1)
        assert latest == {"both-pilot"}


# two users ---------------------------------------------------------------------------------------


@with_and_without
def test_memory_visibility_separates_users(world: World, share: bool) -> None:
    """Nor where both talk to the same agent, nor in any context of what they share."""
    for who in EVERY_KEY:
        others = set(WHO) - ALICES
        for session in ALICES:
            for participants in (None, [ALICE], [ALICE, HELPER], [ALICE, PILOT]):
                if participants is not None and not set(participants) <= set(WHO[session]):
                    continue
                query = {"participants": participants} if participants else {}
                recent, chains = world.context(who, session, **query)
                topics = chains | {text.partition(":")[0] for text in recent}
                topics |= world.search(who, session, **query)
                assert session in topics
                assert topics.isdisjoint(others), (session, participants)
        for names in ((ALICE,), (ALICE, HELPER), (ALICE, HELPER, PILOT)):
            assert all(results.isdisjoint(others) for results in world.everything(who, *names))
        both = [results for names in ((ALICE, BOB), (ALICE, BOB, PILOT)) for results in
                world.everything(who, *names)]  # fmt: skip
        assert all(results == {"both-pilot"} for results in both)


@with_and_without
def test_memory_visibility_binds_key_to_its_user(world: World, share: bool) -> None:
    """No matter who is named, the user of the credential is added: what only others were in is not
    there."""
    for names in ((BOB,), (BOB, HELPER), (HELPER,), (PILOT,)):
        scope_ids = world.everything("alice", *names)
        assert all(names_found <= ALICES for names_found in scope_ids), names
    for path in (f"/api/v1/events/{world.events['bob-helper']}", f"{SESSIONS}/bob-helper/context"):
        for query in ({}, {"participants": BOB}, {"participants": [BOB, HELPER]}):
            reply = world.gateway.call("GET", path, key=world.keys["alice"], query=query)
            assert reply.status == 404, (path, query)
    recent, chains = world.context("alice", "both-pilot", participants=BOB)
    assert (recent, chains) == (["both-pilot: the buoy"], {"both-pilot"})


@with_and_without
def test_memory_visibility_agents_alone_stay_readers(world: World, share: bool) -> None:
    """Without them nobody would ask, which is everything."""
    of_helper = {"alice-helper", "bob-helper", "agents"}
    for who in ("anyone", "admin"):
        assert all(result == of_helper for result in world.everything(who, HELPER))
        assert all(result == {"agents"} for result in world.everything(who, HELPER, PILOT))
    assert world.context("anyone", "agents") == (["agents: the buoy"], {"agents"})
    assert world.search("anyone", "agents") == {"agents"}
    _, chains = world.context("anyone", "agents", participants=HELPER)
    assert chains == of_helper
    nobody = world.gateway.call("GET", "/memories/list", key=world.keys["anyone"])
    assert (nobody.status, nobody.error["details"]["field"]) == (422, "participants")


# what a session may be asked ---------------------------------------------------------------------


@with_and_without
@pytest.mark.parametrize("name", [BOB, PILOT, "user:nobody"])
def test_memory_visibility_refuses_non_participants(world: World, name: str, share: bool) -> None:
    path, query = f"{SESSIONS}/alice-helper/context", {"participants": [ALICE, name]}
    for who in ("alice", "anyone", "admin"):
        key = world.keys[who]
        body = {"query": "x", **query}
        for reply in (
            world.gateway.call("GET", path, key=key, query=query),
            world.gateway.call("POST", f"{path}/search", body, key=key),
        ):
            assert (reply.status, reply.error["details"]["field"]) == (422, "participants")


@pytest.mark.parametrize("share", [False])
def test_memory_visibility_adds_bound_user_to_names(world: World, share: bool) -> None:
    """So the agent's name alone is the session's own two; for an unbound caller it is not."""
    assert world.context("alice", "alice-pilot", participants=PILOT)[1] == {"alice-pilot"}
    wide = world.context("anyone", "alice-pilot", participants=PILOT)[1]
    assert wide == {"alice-pilot", "both-pilot", "agents"}


@pytest.mark.parametrize("share", [False])
@pytest.mark.parametrize("wrong", ["yes", "1", "", "True"])
def test_memory_visibility_only_session_is_boolean(world: World, wrong: str, share: bool) -> None:
    path, key = f"{SESSIONS}/alice-helper/context", world.keys["alice"]
    reply = world.gateway.call("GET", path, key=key, query={"only_session": wrong})
    assert (reply.status, reply.error["details"]["field"]) == (422, "only_session")
    body = {"query": "x", "only_session": wrong}
    reply = world.gateway.call("POST", f"{path}/search", body, key=key)
    assert (reply.status, reply.error["details"]["field"]) == (422, "only_session")


@with_and_without
def test_memory_visibility_only_session_excludes_others(
    world: World, tell: Tell, embedder: Embedder, share: bool
) -> None:
    """Neither another session of the same two, nor another scope; nor a chain that took in what was
    said in another session, whichever began it."""

    def chain(topic: str, *sessions: str | None) -> None:
        result = None
        for session in sessions:
            more = {"session_id": session} if session else {}
            event_id = tell(world.keys["alice"], f"{topic}: the buoy", **more)["event_id"]
            result = add_chain(
                world.gateway,
                world.base,
                [event_id],
                topic=topic,
                embedder=embedder,
                chain_id=result,
            )

    chain("other", "other")
    chain("begun here", "alice-helper", "other")
    chain("begun there", "other", "alice-helper")
    chain("without a session", None)
    here = [f"{topic}: the buoy" for topic in ("begun there", "begun here", "alice-helper")]
    for query in ({}, {"query": "the buoy"}, {"participants": ALICE}):
        narrow = world.context("alice", "alice-helper", only_session="true", **query)
        assert narrow == (here, {"alice-helper"})
        recent, chains = world.context("alice", "alice-helper", only_session="false", **query)
        assert {"alice-helper", "other", "begun here", "without a session"} <= chains
        wide = share or "participants" in query
        assert ("alice-pilot" in chains, "alice-pilot: the buoy" in recent) == (wide, wide)
    for more in ({}, {"participants": [ALICE]}):
        results = world.search("alice", "alice-helper", only_session=True, **more)
        assert results == {"alice-helper"}
        assert len(world.search("alice", "alice-helper", only_session=False, **more)) >= 4
    assert world.context("alice", "other", only_session="true")[1] == {"other"}


@with_and_without
def test_memory_visibility_holds_in_word_search(world: World, tell: Tell, share: bool) -> None:
    """Chains without a vector are found by the words of their events; one that took in what was
    said in another session has words of both."""
    merge = None
    for name in ("alice-helper", "other"):
        receipt = tell(world.keys["alice"], "A red buoy.", session_id=name)
        merge = add_chain(
            world.gateway, world.base, [receipt["event_id"]], topic="merged", chain_id=merge
        )
    world.base.rows("delete from chain_vectors")
    own = {"alice-helper", "merged"}
    assert world.search("alice", "alice-helper", participants=[ALICE]) == ALICES | own
    assert world.search("alice", "alice-helper") == (ALICES | own if share else own)
    assert world.search("alice", "alice-helper", only_session=True) == {"alice-helper"}


@pytest.mark.parametrize("share", [False])
def test_memory_visibility_only_session_filters_before_limit(
    world: World, tell: Tell, embedder: Embedder, share: bool
) -> None:
    receipt = tell(world.keys["alice"], "The red buoy is new.", session_id="other")
    add_chain(
        world.gateway, world.base, [receipt["event_id"]], topic="the red buoy", embedder=embedder
    )
    query = {"query": "They talked about the red buoy.", "limit": 1}
    assert world.search("alice", "alice-helper", **query) == {"the red buoy"}
    assert world.search("alice", "alice-helper", only_session=True, **query) == {"alice-helper"}


@pytest.mark.parametrize("share", [True])
def test_memory_visibility_session_analysis_stays_its_own(world: World, share: bool) -> None:
    """Topics, heat and segments are of the session, no matter who reads them."""
    path = f"{SESSIONS}/alice-helper"
    (topic,) = world.read("alice", "GET", f"{path}/analysis/topics")["topics"]
    assert topic["event_ids"] == [world.events["alice-helper"]]
    for name, chains in (("analysis/heat", "chains"), ("segments", "segments")):
        (result,) = world.read("alice", "GET", f"{path}/{name}")[chains]
        assert result["topic"] == "alice-helper"


@pytest.mark.parametrize("share", [True])
def test_memory_visibility_wide_context_warms_its_chains(world: World, share: bool) -> None:
    world.base.rows("delete from recalls")
    world.context("alice", "alice-helper", query="They talked about alice-pilot.")
    rows = world.base.rows(
        "select v.topic, r.participants = v.participants from recalls r"
        " join chain_versions v using (tenant_id, chain_id)"
    )
    assert ("alice-pilot", True) in rows
    assert {topic for topic, _ in rows} <= ALICES


# what is written ---------------------------------------------------------------------------------


@with_and_without
def test_memory_visibility_append_keeps_exact_scope(world: World, share: bool) -> None:
    rows = world.base.rows("select session_id, scope_id, participants from events")
    assert {name: (scope, who) for name, scope, who in rows} == {
        name: (derive_scope_id("acme", sorted(who)), sorted(who)) for name, who in WHO.items()
    }
    body = {"user_message": "Where?", "agent_response": "There."}
    reply = world.gateway.call(
        "POST", f"{SESSIONS}/alice-pilot/interactions", body, key=world.keys["alice"]
    )
    assert reply.status == 201, reply.text
    assert reply.body["user"]["scope_id"] == str(derive_scope_id("acme", [PILOT, ALICE]))


@with_and_without
def test_memory_visibility_edge_target_must_be_seen_by_all(
    world: World, tell: Tell, share: bool
) -> None:
    """An agent that shares may read what another holds; a new event of its own still cannot cite
    it, because the scope would then rest on another's."""
    tell(world.keys["alice"], "own", ALICE, PILOT, edges=[_edge(world.events["alice-pilot"])])
    for target in ("alice-helper", "bob-helper"):
        body = {
            "participants": [ALICE, PILOT],
            "role": "user",
            "content": "across",
            "edges": [_edge(world.events[target])],
        }
        for who in ("alice", "anyone"):
            reply = world.gateway.call("POST", "/api/v1/events", body, key=world.keys[who])
            assert reply.status == 422, reply.text
    assert world.base.rows("select count(*) from memory_edges") == [(1,)]


def _edge(event_id: str) -> dict[str, object]:
    return {"event_id": event_id, "weight": 0.5}


@with_and_without
def test_memory_visibility_chains_form_within_scope(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, share: bool
) -> None:
    """The same talk twice with each of two agents: a chain of each, and of nobody else."""
    key = gateway.key(user=ALICE)
    scratch_db.rows("update tenants set agents_share = %s", share)
    texts = ("The buoy needs red paint.", "Red paint for the buoy, then.")
    for agent in (HELPER, PILOT):
        for at in ("2026-05-08T12:00:00Z", "2026-05-08T14:00:00Z", "2026-05-08T16:00:00Z"):
            for text in texts:
                tell(key, text, ALICE, agent, occurred_at=at)
    gateway.sweep()
    rows = scratch_db.rows(
        "select c.participants, array_agg(distinct e.participants), bool_and(c.scope_id ="
        " e.scope_id) from chain_events l join events e using (tenant_id, event_id)"
        " join chains c on c.chain_id = l.chain_id group by c.participants order by 1"
    )
    assert rows == [(who, [who], True) for who in ([HELPER, ALICE], [PILOT, ALICE])]


def test_memory_visibility_table_in_docs_holds(
    gateway: Gateway, scratch_db: ScratchDatabase, tell: Tell, repository: Path
) -> None:
    """docs/concepts.md: whom an event was told among, and for whom it is read."""
    text = (repository / "docs" / "concepts.md").read_text("utf-8")
    _, _, rest = text.partition("| told among |")
    rows = [line.strip("| ").split(" | ") for line in rest.splitlines()[2:6]]
    key = gateway.key()
    ids = [tell(key, "the buoy", *re.findall(r"`(.+?)`", row[0]))["event_id"] for row in rows]

    def visible(*names: str) -> list[str]:
        query = {"participants": names}
        statuses = [
            gateway.call("GET", f"/api/v1/events/{one}", key=key, query=query).status for one in ids
        ]
        return ["yes" if status == 200 else "no" for status in statuses]

    assert visible(ALICE) == [row[1] for row in rows]
    assert visible(ALICE, HELPER) == [row[2] for row in rows]
    scratch_db.rows("update tenants set agents_share = true")
    key = gateway.key()  # a new one's settings are not in a cache
    assert visible(ALICE, HELPER) == [row[3] for row in rows]
