"""Every screen of the console with something in it, and with nothing: its address, and words that
tell that it is shown."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.browser.console.console_pages import KEEL, MARA, QUESTION, UNKNOWN


@dataclass(frozen=True)
class Step:
    """A screen in one state."""

    name: str
    screen: str
    state: dict[str, str]
    words: str
    """What it says then."""


@dataclass(frozen=True)
class Places:
    """What of a memory is looked at, by id."""

    scope_id: str
    event_id: str
    upload_id: str
    fact_id: str


def walk_memory(places: Places) -> Iterator[Step]:
    """What an admin's key shows of a memory."""
    scope, both = places.scope_id, f"{MARA},{KEEL}"
    session = {"tab": "sessions", "scope": scope, "session": "s-02"}
    comparison = {"q": QUESTION, "compare": "words", "b_words": "1"}
    counted = {"kind": "participant", "who": MARA}
    yield Step("overview", "overview", {}, "All is well")
    yield Step("conversation", "people", {"scope": scope}, "was erased")
    yield Step("session", "people", session, "s-02")
    yield Step("people", "people", {"tab": "people"}, "mara")
    yield Step("recall-compared", "recall", comparison, "by words alone")
    yield Step("recall-nothing", "recall", {"q": UNKNOWN, "as": both}, "Why nothing came")
    yield Step("event", "event", {"id": places.event_id}, "hashes to its CID")
    yield Step("event-upload", "event", {"id": places.upload_id}, "payload")
    yield Step("event-row", "event", {"row": places.fact_id}, "Node of the graph")
    yield Step("topics", "topics", {}, "The tree")
    yield Step("topics-compared", "topics", {"with": "1"}, "compared with 1")
    yield Step("graph", "graph", {}, "Drawn:")
    yield Step("graph-fact", "graph", {"node": places.fact_id}, "Correct or end it")
    yield Step("graph-wide", "graph", {"hops": "3", "confidence": "0"}, "within three steps")
    yield Step("graph-contradictions", "graph", {"view": "contradictions"}, "alike enough")
    yield Step("graph-merges", "graph", {"view": "merges"}, "never made by itself")
    yield Step("forgetting", "forgetting", {}, "Choose what to forget")
    yield Step("forgetting-counted", "forgetting", counted, "A dry run.")
    yield Step("receipt", "forgetting", {"verify": "1"}, "Verify a receipt")


def walk_operations(tenant: str) -> Iterator[Step]:
    """What an operator's key shows of a tenant."""
    for tab, words in (
        ("keys", "Bound to"),
        ("certificates", "No client certificate is known."),
        ("quotas", "stored_bytes"),
        ("settings", "requests_per_minute"),
        ("audit", "GET /api/v1/admin/tenants"),
    ):
        yield Step(f"operators-{tab}", "operators", {"tenant": tenant, "tab": tab}, words)


def walk_empty_memory() -> Iterator[Step]:
    """What stands where nothing is stored."""
    for screen, state, words in (
        ("overview", {}, "Nothing is stored here yet."),
        ("people", {}, "No scope is in view."),
        ("people", {"tab": "people"}, "Nobody is in view."),
        ("people", {"tab": "sessions"}, "No session is in view."),
        ("recall", {}, "Ask a question."),
        ("recall", {"q": "anything"}, "Why nothing came"),
        ("event", {}, "Name an event."),
        ("topics", {}, "A topic appears three events after it ended"),
        ("graph", {}, "The graph is empty for whom you read."),
        ("graph", {"view": "merges"}, "No merge is proposed."),
        ("graph", {"view": "contradictions"}, "No contradiction was found."),
        ("forgetting", {}, "No conversation is in view."),
        ("operators", {}, "Choose a tenant."),
    ):
        name = "-".join(["empty", screen, *state.values()])
        yield Step(name, screen, state, words)
