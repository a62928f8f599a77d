"""The store of LangGraph, case by case as LangGraph's own tests of its stores have them, and what
this one promises besides."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)

from strandline import Strandline
from strandline.adapters.langgraph import StrandlineStore
from strandline.client.errors import NotFoundError
from tests.strandline.adapters.conftest import Users, act_before_request


@pytest.fixture
def store(users: Users) -> Iterator[StrandlineStore]:
    """One of Alice and her agent, with a key that may not erase."""
    made = StrandlineStore(user=users.alice, agent="helper")
    yield made
    made.close()


@pytest.fixture
def erasing(client: Strandline, users: Users) -> StrandlineStore:
    """One of the same two, with a key that may erase."""
    return StrandlineStore(user=users.alice, agent="helper", client=client)


def names(items: list[SearchItem]) -> list[str]:
    return [item.key for item in items]


# As LangGraph's own tests -------------------------------------------------------------------------


def test_langgraph_store_puts_gets_updates_and_deletes(store: StrandlineStore) -> None:
    namespace = ("test", "documents")
    store.put(namespace, "doc1", {"title": "First", "content": "Hello"})
    item = store.get(namespace, "doc1")
    assert item
    assert (item.namespace, item.key) == (namespace, "doc1")
    assert item.value == {"title": "First", "content": "Hello"}
    assert item.created_at == item.updated_at
    store.put(namespace, "doc1", {"title": "Second"})
    updated = store.get(namespace, "doc1")
    assert updated
    assert updated.value == {"title": "Second"}
    assert updated.updated_at > item.updated_at
    assert updated.created_at == item.created_at
    assert store.get(("test", "others"), "doc1") is None
    store.delete(namespace, "doc1")
    assert store.get(namespace, "doc1") is None
    store.delete(namespace, "never")
    store.put(namespace, "doc1", {"title": "Third"})
    again = store.get(namespace, "doc1")
    assert again
    assert again.created_at == again.updated_at, "created anew"


def test_langgraph_store_batch_keeps_order(store: StrandlineStore) -> None:
    store.put(("test", "foo"), "key1", {"data": "value1"})
    store.put(("test", "bar"), "key2", {"data": "value2"})
    found = store.batch(
        [
            GetOp(("test", "foo"), "key1"),
            PutOp(("test", "bar"), "key2", {"data": "value3"}),
            SearchOp(("test",), filter={"data": "value1"}),
            ListNamespacesOp(limit=10),
            GetOp(("test",), "key3"),
            GetOp(("test", "bar"), "key2"),
        ]
    )
    assert isinstance(found[0], Item)
    assert found[0].value == {"data": "value1"}
    assert found[1] is None
    assert isinstance(found[2], list)
    assert [item.key for item in found[2] if isinstance(item, Item)] == ["key1"]
    assert found[3] == [("test", "bar"), ("test", "foo")]
    assert found[4] is None
    assert isinstance(found[5], Item)
    assert found[5].value == {"data": "value2"}, "a batch reads before it puts"
    assert store.batch([]) == []


def test_langgraph_store_batch_puts_last_of_key(store: StrandlineStore) -> None:
    puts = [PutOp(("test",), "key", {"n": n}) for n in range(3)]
    assert store.batch([*puts, PutOp(("test",), "gone", None)]) == [None] * 4
    item = store.get(("test",), "key")
    assert item
    assert item.value == {"n": 2}
    assert item.created_at == item.updated_at, "one revision"


def test_langgraph_store_searches_by_prefix_and_filter(store: StrandlineStore) -> None:
    for namespace, key, value in (
        (("test", "foo"), "key1", {"data": "value1", "tag": "a", "score": 1.5}),
        (("test", "bar"), "key2", {"data": "value2", "tag": "a", "score": 4}),
        (("test", "baz"), "key3", {"data": "value3", "tag": "b", "score": 9.5}),
        (("tests",), "key4", {"data": "value1", "tag": "a"}),
    ):
        store.put(namespace, key, value)
    assert names(store.search(("test",))) == ["key3", "key2", "key1"], "the newest first"
    assert names(store.search(("test",), filter={"tag": "a"})) == ["key2", "key1"]
    assert names(store.search(("test",), filter={"score": {"$gt": 1.5, "$lte": 9}})) == ["key2"]
    assert names(store.search(("test",), filter={"tag": {"$ne": "a"}})) == ["key3"]
    assert names(store.search(("test",), limit=2)) == ["key3", "key2"]
    assert names(store.search(("test",), limit=2, offset=2)) == ["key1"]
    assert names(store.search(("test", "foo"))) == ["key1"]
    assert names(store.search((), filter={"data": "value1"})) == ["key4", "key1"]
    assert store.search(("nobody",)) == []
    with pytest.raises(ValueError, match="unknown operator"):
        store.search(("test",), filter={"score": {"$near": 1}})


NAMESPACES = [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "f"), ("a", "c", "f"), ("b", "f")]


def test_langgraph_store_lists_namespaces(store: StrandlineStore) -> None:
    assert store.list_namespaces() == []
    store.batch([PutOp(namespace, "key", {"data": 1}) for namespace in NAMESPACES])
    find = store.list_namespaces
    assert find() == NAMESPACES
    assert find(prefix=("a", "b")) == NAMESPACES[:3]
    assert find(prefix=("a",), suffix=("f",)) == NAMESPACES[2:4]
    assert find(prefix=("a", "b"), max_depth=3) == [("a", "b", n) for n in "cdf"]
    assert find(limit=2, offset=1) == NAMESPACES[1:3]
    assert find(prefix=("a", "*", "f")) == NAMESPACES[2:4]
    assert find(suffix=("*", "f")) == NAMESPACES[2:]
    assert find(prefix=("*", "b"), suffix=("*", "e")) == [("a", "b", "d", "e")]
    assert find(prefix=("nonexistent",)) == []
    assert find(max_depth=1) == [("a",), ("b",)]
    (found,) = store.batch([ListNamespacesOp((MatchCondition("prefix", ("a", "c", "f")),))])
    assert found == [("a", "c", "f")]


def test_langgraph_store_refuses_invalid_namespaces(store: StrandlineStore) -> None:
    value = {"foo": "bar"}
    for namespace in ((), ("the", "thing.about"), ("some", ""), ("langgraph", "foo")):
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "foo", value)
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(("foo.bar",), "foo", value)])
    with pytest.raises(NotImplementedError):
        store.put(("test",), "foo", value, ttl=5)
    assert store.supports_ttl is False
    store.batch([PutOp(("langgraph", "foo"), "bar", value)])
    assert names(store.search(("langgraph", "foo"))) == ["bar"]


def wait_for(check: Callable[[], bool], seconds: float = 20) -> None:
    """Vectors come a moment after the words."""
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_langgraph_store_ranks_by_relevance(store: StrandlineStore) -> None:
    memories = {
        "pet": "She has a dog called Balto.",
        "job": "She repairs outboard engines.",
        "food": "She never eats shellfish.",
        "home": "She lives above the chandlery.",
    }
    for key, text in memories.items():
        store.put(("memories", "u1"), key, {"text": text, "kind": key[0]})
    store.put(("memories", "u1"), "hidden", {"text": "An animal, a pet, a dog."}, index=False)

    def find(query: str, **more: Any) -> list[SearchItem]:
        return store.search(("memories", "u1"), query=query, **more)

    wait_for(lambda: names(find("Which animals does she keep?"))[0] == "pet")
    found = find("What must I not cook for her, shellfish?")
    assert found[0].key == "food"
    assert {item.key for item in found} == {*memories, "hidden"}
    scores = [item.score for item in found]
    assert scores[0] is not None
    assert 0 < scores[0] <= 1
    assert (found[-1].key, scores[-1]) == ("hidden", None)
    assert names(find("shellfish", limit=2)) == names(find("shellfish"))[:2]
    assert names(find("shellfish", limit=3, offset=2)) == names(find("shellfish"))[2:5]
    assert names(find("shellfish", filter={"kind": "p"})) == ["pet"]
    assert names(store.search(("memories",), query="shellfish"))[0] == "food"
    store.put(("memories", "u1"), "food", {"text": "She eats everything now.", "kind": "f"})
    assert find("shellfish")[0].value["text"] != memories["food"]


def test_langgraph_store_async_is_the_same(users: Users) -> None:
    async def use() -> None:
        store = StrandlineStore(user=users.alice, agent="helper")
        await store.aput(("memories", "u1"), "pet", {"text": "a dog"})
        item = await store.aget(("memories", "u1"), "pet")
        assert item
        assert item.value == {"text": "a dog"}
        found = await store.asearch(("memories",), query="dog")
        assert [(one.key, one.namespace) for one in found] == [("pet", ("memories", "u1"))]
        assert await store.alist_namespaces() == [("memories", "u1")]
        await store.adelete(("memories", "u1"), "pet")
        assert await store.aget(("memories", "u1"), "pet") is None
        assert await store.alist_namespaces() == []
        results = await store.abatch([PutOp(("many", str(n)), "key", {"n": n}) for n in range(12)])
        assert results == [None] * 12
        gets = await store.abatch([GetOp(("many", str(n)), "key") for n in range(12)])
        assert [item.value["n"] for item in gets if isinstance(item, Item)] == [*range(12)]
        await store.aclose()

    asyncio.run(use())


# What it promises besides -------------------------------------------------------------------------


def test_langgraph_store_keeps_names_apart(store: StrandlineStore) -> None:
    keys = ["a", "A", "a ", " a", "/a", "a/b", "%2F", "\u00e9", "e\u0301", ".", "..", "x" * 300,
            "x" * 301, "", "~", "日本", "a\tb", "\x85", " ", "  "]  # fmt: skip
    spaces = [("n",), ("N",), ("n ",), ("n", "m"), ("n/m",), ("n!",), ("ﬁ",), ("fi",), ("日本",)]
    for namespace in spaces:
        store.put(namespace, "key", {"of": "/".join(namespace)})
    assert {item.value["of"] for item in store.search((), limit=100)} == {
        "/".join(namespace) for namespace in spaces
    }
    assert sorted(store.list_namespaces()) == sorted(spaces)
    for number, key in enumerate(keys):
        store.put(("keys",), key, {"n": number})
    assert {item.key: item.value["n"] for item in store.search(("keys",), limit=100)} == {
        key: number for number, key in enumerate(keys)
    }
    for number, key in enumerate(keys):
        item = store.get(("keys",), key)
        assert item
        assert (item.key, item.value) == (key, {"n": number})


def test_langgraph_store_value_is_statement_and_history_stays(
    store: StrandlineStore, client: Strandline, users: Users
) -> None:
    for colour in ("red", "blue"):
        store.put(("memories", "u1"), "kayak", {"colour": colour})
    who = [f"user:{users.alice}", "agent:helper"]
    said = [event for event in client.get_all(participants=who) if "kayak" in (event.content or "")]
    assert {event.type for event in said} == {"statement"}
    assert [event.metadata["graph"]["revise"]["value"] for event in said] == [
        {"colour": "blue"},
        {"colour": "red"},
    ]
    text = client.context("What colour is the kayak?", participants=who).text
    assert "blue" in text
    assert "red" not in text
    hits = client.recall("What colour is the kayak?", participants=who, min_relevance=0).hits
    assert not any("red" in (hit.text or "") for hit in hits)
    topic = client.graph.search("langgraph:memories/u1", participants=who, mode="exact").nodes[0]
    history = client.graph.field(topic.id, "kayak", participants=who).history
    assert [revision.value["colour"] for revision in history] == ["blue", "red"]


def test_langgraph_store_delete_erases_where_key_may(
    erasing: StrandlineStore, client: Strandline, users: Users
) -> None:
    who = [f"user:{users.alice}", "agent:helper"]
    for number in range(3):
        erasing.put(("memories",), "secret", {"word": f"zyzzyva-{number}"})
    erasing.put(("memories",), "other", {"word": "plain"})
    before = [event for event in client.get_all(participants=who) if "zyzzyva" in str(event)]
    assert len(before) == 3
    erasing.delete(("memories",), "secret")
    assert erasing.get(("memories",), "secret") is None
    assert not [event for event in client.get_all(participants=who) if "zyzzyva" in str(event)]
    assert names(erasing.search(("memories",))) == ["other"]
    topic = client.graph.search("langgraph:memories", participants=who, mode="exact").nodes[0]
    with pytest.raises(NotFoundError):
        client.graph.field(topic.id, "secret", participants=who)
    erasing.delete(("memories",), "other")
    assert erasing.list_namespaces() == []


def test_langgraph_store_repeated_delete_erases(
    erasing: StrandlineStore, client: Strandline, users: Users
) -> None:
    """The service was away between the tombstone and the erasure."""
    erasing.put(("memories",), "secret", {"word": "zyzzyva"})

    def fail() -> None:
        raise ConnectionError("the service is away")

    act_before_request(client, "POST", "/erasures", fail)
    with pytest.raises(ConnectionError):
        erasing.delete(("memories",), "secret")
    erasing.delete(("memories",), "secret")
    erasing.delete(("memories",), "secret")
    assert erasing.get(("memories",), "secret") is None
    assert "zyzzyva" not in str([*client.get_all(user=users.alice, agent="helper")])


def test_langgraph_store_delete_leaves_tombstone_said_once(
    store: StrandlineStore, client: Strandline, users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    who = [f"user:{users.alice}", "agent:helper"]
    with caplog.at_level(logging.WARNING, "strandline"):
        for key in ("one", "two"):
            store.put(("memories",), key, {"word": "zyzzyva"})
            store.delete(("memories",), key)
    assert [record.getMessage() for record in caplog.records if "tombstone" in record.message] == [
        "this key has no right to erase: what is deleted is hidden by a tombstone, and its"
        " history stays in the log"
    ]
    assert store.search(("memories",)) == []
    assert store.search((), query="zyzzyva") == []
    assert store.list_namespaces() == []
    assert "zyzzyva" not in client.context("zyzzyva", participants=who).text
    assert len([e for e in client.get_all(participants=who) if "zyzzyva" in str(e)]) == 2


def test_langgraph_store_needs_user(client: Strandline, users: Users) -> None:
    with pytest.raises(ValueError, match="name the user"):
        StrandlineStore(agent="helper")
    with pytest.raises(ValueError, match="name the user"):
        StrandlineStore()
    store = StrandlineStore(participants=lambda namespace, config: ["agent:helper"], client=client)
    for act in (
        lambda: store.put(("memories",), "key", {"a": 1}),
        lambda: store.get(("memories",), "key"),
        lambda: store.search(("memories",)),
    ):
        with pytest.raises(ValueError, match="name the user"):
            act()
    with pytest.raises(ValueError, match="names the user and the agent"):
        StrandlineStore(user=users.alice, participants=lambda namespace, config: [])


def test_langgraph_store_separates_users(client: Strandline, users: Users) -> None:
    store = StrandlineStore(
        participants=lambda namespace, config: [f"user:{namespace[-1]}", "agent:helper"],
        client=client,
    )
    for user in users:
        store.put(("memories", user), "name", {"name": user})
        assert names(store.search(("memories", user))) == ["name"]
        assert store.list_namespaces(prefix=("memories", user)) == [("memories", user)]
    bob = StrandlineStore(user=users.bob, agent="helper", client=client)
    assert bob.get(("memories", users.alice), "name") is None
    assert {item.value["name"] for item in bob.search(())} == {users.bob}
    bob.put(("memories", users.alice), "name", {"name": "not hers"})
    item = store.get(("memories", users.alice), "name")
    assert item
    assert item.value == {"name": users.alice}


def test_langgraph_store_refuses_too_large_value(store: StrandlineStore) -> None:
    store.put(("test",), "key", {"text": "x" * 14_000})
    with pytest.raises(ValueError, match="at most 15360"):
        store.put(("test",), "key", {"text": "x" * 16_000})
    item = store.get(("test",), "key")
    assert item
    assert len(item.value["text"]) == 14_000
