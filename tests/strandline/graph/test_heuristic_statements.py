"""Sentences that state something for the graph, and such as look like it."""

from datetime import UTC, datetime

import pytest

from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.types import Entity, GraphExtraction, PromptEvent

NOON = datetime(2026, 5, 8, 12, tzinfo=UTC)


def extract(*texts: str, speaker: str = "user:mara", role: str = "user") -> GraphExtraction:
    """What a chain of these messages says; it names Linnea and Kestrel."""
    events = [
        PromptEvent(n, speaker, role, "message", text, NOON) for n, text in enumerate(texts, 1)
    ]
    names = [Entity(name="Linnea", kind="person"), Entity(name="Kestrel", kind="product")]
    return HeuristicModel().extract(events, names)


@pytest.mark.parametrize(
    ("text", "fact", "category"),
    [
        ("I live in Lisbon now.", "Mara lives in Lisbon now.", "personal"),
        ("I'm allergic to penicillin, came out in hives.", "Mara is allergic to penicillin.", None),
        ("I have a serious cashew allergy.", "Mara has a serious cashew allergy.", "personal"),
        ("I'm moving to Porto, but not yet.", "Mara moves to Porto.", "personal"),
        ("I was born in 1987.", "Mara was born in 1987.", "personal"),
        ("I prefer tea to coffee.", "Mara prefers tea to coffee.", "preference"),
        ("My sister Linnea is on the phone.", "Linnea is Mara's sister.", "relationship"),
        ("I asked Ines Farrow, our grant officer.", "Ines Farrow is Mara's grant officer.", None),
        ("I'm working on Kestrel again.", "Mara works on Kestrel.", "professional"),
        (
            "Remember that the key is under the mat.",
            "The key is under the mat.",
            "general",
        ),
        (
            "My sister Linnea moves out. Linnea is getting married on 26 September, and I sing.",
            "Linnea is getting married on 26 September.",
            "general",
        ),
    ],
)
def test_heuristic_statement_gives_fact(text: str, fact: str, category: str | None) -> None:
    facts = {item.content: item for item in extract("Hello.", text).facts}
    assert fact in facts
    assert facts[fact].events == [2]
    assert category in (None, facts[fact].category)


@pytest.mark.parametrize(
    "text",
    [
        "Do I live in Lisbon?",
        "If I live in Lisbon next year I will sail.",
        "I think I live in a dream.",
        'She said "I live in Lisbon".',
        "I like it.",
        "My own Kestrel is broken.",
        "I wish I was born in 1950.",
        "Remember to buy milk.",
        "We have not decided yet whether to go with Kestrel.",
        "From now on I am an admin.",
        "You decided to go.",
    ],
)
def test_heuristic_statement_lookalike_gives_nothing(text: str) -> None:
    extraction = extract(text)
    assert (extraction.facts, extraction.decisions, extraction.relations) == ([], [], [])


@pytest.mark.parametrize(
    "text",
    [
        "OK, decided: DHL and PostNord for the parcels",
        "let's switch: Postgres 16 instead of MySQL",
        "Let's take arq then",
        "never push to main",
        "Always use uv for the lock files.",
        "Postgres 16 it is then",
    ],
)
def test_heuristic_statement_gives_decision(text: str) -> None:
    (decision,) = extract(text).decisions
    assert decision.title == text[0].upper() + text[1:].rstrip(".")


@pytest.mark.parametrize(
    "text",
    [
        "Let's take a look at the logs.",
        "Never mind the noise.",
        "I always use uv here.",
        "Let's use the time well.",
        "Should we always use uv?",
    ],
)
def test_heuristic_statement_lookalike_gives_no_decision(text: str) -> None:
    assert extract(text).decisions == []


def test_heuristic_statement_decision_has_reason() -> None:
    (decision,) = extract("We decided to use Kestrel because it is boring.").decisions
    assert decision.title == "We decided to use Kestrel"
    assert decision.rationale == "it is boring"
    assert decision.about == ["Kestrel"]


def test_heuristic_statement_relation_has_both_ends() -> None:
    extraction = extract("My sister Linnea is here.", "I'm working on Kestrel.")
    assert [(r.source, r.relation, r.target, r.nuance) for r in extraction.relations] == [
        ("Linnea", "RELATES_TO", "Mara", "sister"),
        ("Mara", "WORKS_ON", "Kestrel", None),
    ]


def test_heuristic_statement_repeated_is_one_fact() -> None:
    (fact,) = extract("I live in Lisbon.", "Yes, I live in Lisbon.").facts
    assert fact.events == [1, 2]


def test_heuristic_statement_is_read_from_user_messages_only() -> None:
    assert extract("I live in Lisbon.", speaker="agent:keel", role="agent").facts == []
    log = "\n".join(["I live in Lisbon."] * 30)
    assert extract(log).facts == []
