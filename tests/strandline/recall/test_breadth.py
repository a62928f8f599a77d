"""Breadth: questions that need a list, an order or a summary get the events of the best hits'
topics, of what the reader sees, in one more statement."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

import pytest

from strandline.db.database import TenantDb
from strandline.recall import store, topic_breadth
from strandline.recall.broad_questions import asks_for_breadth
from strandline.recall.features import CandidateEvent, EventScoreFeatures
from strandline.recall.relevance import ScoredEvent
from strandline.recall.topic_breadth import NO_TOPICS, TopicEvents
from tests.chains import add_chain
from tests.mcp_calls import call_tool
from tests.support import Gateway, ScratchDatabase

ALICE, BOB = "user:alice", "user:bob"
QUESTION = "In which order did we work on the zyzzyva?"
SEED = "The zyzzyva was ordered."
"""The only text with the question's rare word."""
STEPS = ("We sawed the planks.", "Then came the varnish.", "At last the rudder was hung.")
BROAD = (
    "Can you list the order in which I brought up the parts of my app?",
    "Could you give me a comprehensive summary of how the project has progressed?",
    "Please summarize what we decided about the boat.",
    "Tell me everything about the harbour.",
    "How many days did I take off in total?",
    "Which topics came up across our conversations?",
    "Fasse bitte zusammen, was wir über das Boot wissen.",
    "In welcher Reihenfolge haben wir das Boot gebaut?",
    "¿En qué orden hablamos de las partes?",
    "Résume ce que nous savons du port.",
    "Riassumi quello che sappiamo della barca.",
    "Vat samen wat we over de haven weten.",
    "Em que ordem falamos das partes?",
    "В каком порядке мы строили лодку?",  # noqa: RUF001
    "港について要約してください",
    "请总结我们的讨论",
)
PLAIN = (
    "Where does Alice live?",
    "What did the summary of the report say?",
    "When did we order the planks?",
    "How many planks did Bob buy?",
    "Can you walk me through how to hang a rudder?",
    "Who made the list?",
    "What happened to the boat on Monday?",
    "Wann hat sie alles bezahlt?",
    "¿Dónde está la lista?",
    "Qui a écrit le résumé ?",
)


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key()


@pytest.fixture
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the best event by words and by vector is found; all else must come by its topic."""
    monkeypatch.setattr(store, "CANDIDATES", 1)


def tell(
    gateway: Gateway, key: str, said: Sequence[str], *people: str, session: str = "s", day: int = 1
) -> list[str]:
    """Append messages of one session, a minute apart; gives their ids."""
    events = [
        {
            "content": content,
            "role": "user",
            "speaker": people[0] if people else ALICE,
            "participants": list(people or (ALICE,)),
            "session_id": session,
            "occurred_at": f"2026-05-{day:02}T08:{minute:02}:00Z",
        }
        for minute, content in enumerate(said)
    ]
    reply = gateway.call("POST", "/api/v1/events/batch", {"events": events}, key=key)
    assert (reply.status, reply.body["failed"]) == (200, 0), reply.text
    return [result["event"]["event_id"] for result in reply.body["results"]]


def recall(gateway: Gateway, key: str, **more: Any) -> Any:
    body = {"query": QUESTION, "participants": [ALICE], "breadth": True, **more}
    reply = gateway.call("POST", "/api/v1/recall", body, key=key)
    assert reply.status == 200, reply.text
    return reply.body


def texts(answer: Any) -> list[str]:
    return [hit["text"] for hit in answer["hits"]]


# which questions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("question", BROAD)
def test_breadth_is_told_from_form_of_question(question: str) -> None:
    assert asks_for_breadth(question)


@pytest.mark.parametrize("question", PLAIN)
def test_breadth_takes_no_plain_question(question: str) -> None:
    assert not asks_for_breadth(question)


def test_breadth_reads_only_beginning_of_long_text() -> None:
    assert not asks_for_breadth(f"{'We sailed. ' * 60}In which order?")


# which events -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few_candidates")
def test_breadth_adds_events_of_chain_in_order_of_time(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    said = tell(gateway, key, (*STEPS, SEED))
    tell(gateway, key, ("Lunch was soup.",), session="other", day=2)
    add_chain(gateway, scratch_db, said)
    gateway.sweep()
    answer = recall(gateway, key)
    assert texts(answer)[:4] == [*STEPS, SEED]
    assert answer["breadth"]
    assert [hit["why"][-1:] for hit in answer["hits"][:2]] == [["topic"]] * 2
    assert texts(recall(gateway, key, order="relevance"))[0] == SEED
    plain = recall(gateway, key, breadth=False)
    assert texts(plain)[0] == SEED
    assert not plain["breadth"]
    assert not set(STEPS[:2]) & set(texts(plain)), "the planted fault: found without its topic"


@pytest.mark.usefixtures("few_candidates")
def test_breadth_of_recall_follows_form_of_question(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    add_chain(gateway, scratch_db, tell(gateway, key, (*STEPS, SEED)))
    gateway.sweep()
    told = recall(gateway, key, breadth=None)
    assert (texts(told), told["breadth"]) == ([*STEPS, SEED], True)
    question = "Who ordered the zyzzyva?"
    plain, narrow = (recall(gateway, key, query=question, breadth=one) for one in (None, False))
    assert (texts(plain), plain["breadth"]) == (texts(narrow), False)


@pytest.mark.usefixtures("few_candidates")
def test_breadth_is_argument_of_tools(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    add_chain(gateway, scratch_db, tell(gateway, key, (*STEPS, SEED)))
    gateway.sweep()
    about = {"query": "Who ordered the zyzzyva?", "participants": [ALICE]}
    for tool in ("recall", "context"):
        narrow, broad = (
            call_tool(gateway, tool, {**about, "breadth": one}, key=key)[0] for one in (False, True)
        )
        assert SEED in narrow
        assert (STEPS[0] in narrow, STEPS[0] in broad) == (False, True)


@pytest.mark.usefixtures("few_candidates")
def test_breadth_adds_open_tail_that_no_chain_holds(gateway: Gateway, key: str) -> None:
    tell(gateway, key, (SEED, *STEPS))
    tell(gateway, key, ("Lunch was soup.",), session="other", day=2)
    gateway.sweep()  # embedded, and in no chain as long as the topic is open
    assert not set(STEPS[:2]) & set(texts(recall(gateway, key, breadth=False)))
    assert set(texts(recall(gateway, key))) >= {SEED, *STEPS}


@pytest.mark.usefixtures("few_candidates")
def test_breadth_leaves_out_rejected_chain(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    add_chain(gateway, scratch_db, tell(gateway, key, (*STEPS, SEED)), status="rejected")
    gateway.sweep()
    assert not set(STEPS[:2]) & set(texts(recall(gateway, key)))


# what holds for them ------------------------------------------------------------------------------


@pytest.mark.usefixtures("few_candidates")
def test_breadth_shows_nothing_of_other_readers_or_tenants(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    add_chain(gateway, scratch_db, tell(gateway, key, (*STEPS, SEED), ALICE, BOB))
    mine = tell(gateway, key, ("The zyzzyva is mine.", "I keep it dry."), ALICE, session="m")
    add_chain(gateway, scratch_db, mine)
    gateway.sweep()
    both = recall(gateway, key, participants=[ALICE, BOB])
    assert texts(both) == [*STEPS, SEED]
    assert texts(recall(gateway, key, participants=[BOB])) == [*STEPS, SEED]
    assert not recall(gateway, gateway.key("other"))["hits"]


@pytest.mark.usefixtures("few_candidates")
def test_breadth_keeps_period_session_and_as_of(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    first = tell(gateway, key, (SEED, STEPS[0]), session="one", day=1)
    later = tell(gateway, key, STEPS[1:], session="two", day=9)
    add_chain(gateway, scratch_db, [*first, *later])
    gateway.sweep()
    early = [SEED, STEPS[0]]
    assert set(texts(recall(gateway, key))) == {*early, *STEPS[1:]}
    assert texts(recall(gateway, key, as_of="2026-05-02T00:00:00Z")) == early
    assert texts(recall(gateway, key, until="2026-05-02T00:00:00Z")) == early
    assert texts(recall(gateway, key, session_id="one")) == early


@pytest.mark.usefixtures("few_candidates")
def test_breadth_keeps_limit_and_budget(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    add_chain(gateway, scratch_db, tell(gateway, key, (*STEPS, SEED)))
    gateway.sweep()
    two = texts(recall(gateway, key, limit=2))
    assert (len(two), SEED in two) == (2, True)
    answer = recall(gateway, key, max_tokens=12)
    assert sum(-(-len(text.encode()) // 4) for text in texts(answer)) <= 12
    assert answer["did_not_fit"] > 0


@pytest.mark.usefixtures("few_candidates")
def test_breadth_leaves_out_erased_event(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    said = tell(gateway, key, (*STEPS, SEED))
    add_chain(gateway, scratch_db, said)
    gateway.sweep()
    eraser = gateway.key(rights=["erase"])
    assert gateway.call("DELETE", f"/api/v1/events/{said[0]}", key=eraser).status in (200, 202)
    assert STEPS[0] not in texts(recall(gateway, key))


@pytest.mark.usefixtures("few_candidates")
def test_breadth_puts_near_duplicates_in_one_place(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    once, twice = "We sawed all of the planks.", "we sawed all of the planks"
    add_chain(gateway, scratch_db, tell(gateway, key, (once, twice, SEED)))
    gateway.sweep()
    answer = recall(gateway, key)
    assert texts(answer) == [twice, SEED]
    assert answer["hits"][0]["similar"]["count"] == 1


def test_breadth_costs_one_more_statement(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        said = tell(gateway, key, (f"The zyzzyva {n} was ordered.", *STEPS), session=f"s{n}")
        add_chain(gateway, scratch_db, said)
    gateway.sweep()
    statements = list[str]()
    fetch = TenantDb.fetch

    def count(self: TenantDb, row_type: Any, statement: Any, *rest: Any) -> Any:
        statements.append(row_type.__name__)
        return fetch(self, row_type, statement, *rest)

    recall(gateway, key, breadth=False)  # leases the quota
    monkeypatch.setattr(TenantDb, "fetch", count)
    recall(gateway, key, breadth=False)
    narrow = len(statements)
    recall(gateway, key)
    assert len(statements) == 2 * narrow + 1
    assert statements.count("TopicEventRow") == 1


# the order ----------------------------------------------------------------------------------------


def scored(n: int, score: float, session: str) -> ScoredEvent:
    """An event with a score."""
    candidate = CandidateEvent(
        event_id=UUID(int=n),
        scope_id=UUID(int=1),
        session_id=session,
        seq=n,
        place=n,
        speaker=ALICE,
        said_at=datetime(2026, 5, 1),  # noqa: DTZ001
        said_on=date(2026, 5, 1),
        word_bits=0,
        cosine=None,
        passage_cosines=None,
        text_bytes=20,
        question_bytes=0,
        is_statement=False,
        author=None,
        says_nothing=False,
    )
    return ScoredEvent(candidate, EventScoreFeatures(*[0.0] * 13), score, 0.5)


def test_breadth_spreads_order_over_topics_and_sessions() -> None:
    events = [scored(1, 5.0, "a"), scored(2, 4.9, "a"), scored(3, 4.6, "b"), scored(4, 1.0, "c")]
    topics = TopicEvents({UUID(int=1): "t", UUID(int=2): "t", UUID(int=3): "u"}, ())
    order = [event.candidate.event_id.int for event in topics.spread(events)]
    assert order == [1, 3, 2, 4], "what is far less relevant stays last"
    assert NO_TOPICS.spread(events) == events


def test_breadth_keeps_every_event_past_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_breadth, "_MAX_SPREAD", 2)
    events = [scored(n, 9.0 - n, f"{n % 2}") for n in range(1, 6)]
    topics = TopicEvents({UUID(int=1): "t"}, ())
    order = [event.candidate.event_id.int for event in topics.spread(events)]
    assert sorted(order) == [1, 2, 3, 4, 5]
    assert order[2:] == sorted(order[2:])


# refusals, and contexts ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["recall", "context"])
def test_breadth_must_be_boolean(gateway: Gateway, key: str, path: str) -> None:
    body = {"query": QUESTION, "participants": [ALICE], "breadth": "yes"}
    reply = gateway.call("POST", f"/api/v1/{path}", body, key=key)
    assert (reply.status, reply.error["code"]) == (422, "invalid_field")


def test_breadth_of_context_needs_query(gateway: Gateway, key: str) -> None:
    tell(gateway, key, [SEED])
    body = {"participants": [ALICE], "breadth": True}
    reply = gateway.call("POST", "/api/v1/context", body, key=key)
    assert (reply.status, "breadth needs a query" in reply.text) == (422, True)
    path = "/api/v1/sessions/s/context"
    reply = gateway.call("GET", path, key=key, query={"breadth": "true"})
    assert (reply.status, "breadth needs a query" in reply.text) == (422, True)


@pytest.mark.parametrize("path", ["", "sessions/s/"])
def test_breadth_of_context_shows_more_events_dated(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, path: str
) -> None:
    padding = " It took the whole long morning, and nobody said a word about it." * 6
    said = [f"The zyzzyva got part {n}.{padding}" for n in range(20)]
    add_chain(gateway, scratch_db, tell(gateway, key, said), topic="the zyzzyva")
    gateway.sweep()

    def show(breadth: bool) -> Any:
        fields: dict[str, Any] = {"query": QUESTION, "budget": 600}
        if path:
            query = {**fields, "format": "text", "breadth": str(breadth).lower()}
            reply = gateway.call("GET", f"/api/v1/{path}context", key=key, query=query)
        else:
            body = {**fields, "participants": [ALICE], "breadth": breadth}
            reply = gateway.call("POST", "/api/v1/context", body, key=key)
        assert reply.status == 200, reply.text
        assert reply.body["breadth"] is breadth
        assert reply.body["tokens"] <= 600
        return reply.body

    broad, narrow = show(True), show(False)
    assert len(broad["citations"]) > len(narrow["citations"]) + 2
    lines = [line for line in broad["text"].splitlines() if "got part" in line and line[0] == "["]
    parts = [int(line.partition("part ")[2].split(".")[0]) for line in lines]
    assert parts == sorted(parts)
    assert "the zyzzyva" in broad["text"].partition("Topics:")[2]
