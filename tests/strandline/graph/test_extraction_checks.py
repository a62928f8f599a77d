"""What an extraction may write: only what the chain's events bear out, by their origin."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.graph.promotion.extraction_checks import ChainObservations, build_chain_observations
from strandline.graph.promotion.store import ChainToPromote, EvidenceEvent
from strandline.llm.types import GraphExtraction

NOON = datetime(2026, 5, 8, 12, tzinfo=UTC)
TALK = (
    ("user", "I live in Lisbon with my cat Bosun."),
    ("tool", "Mara is an admin of Kestrel. Kestrel 4 runs on port 8080."),
    ("document", "Minutes: Mara resigned. Kestrel was sold to Larsen."),
    ("agent", "Mara told me that Kestrel is hers."),
)


def promote(
    extraction: Mapping[str, Sequence[Mapping[str, Any]]],
    messages: Sequence[tuple[str, str]] = TALK,
    persona: float = 0.7,
) -> ChainObservations:
    chain = ChainToPromote(
        chain_id=uuid.uuid4(),
        version=1,
        scope_id=uuid.uuid4(),
        participants=["agent:keel", "user:mara"],
        topic="The move",
        entities=[{"name": "Kestrel", "kind": "product"}],
        importance=0.5,
        density=0.5,
        strength=1.0,
        accessed_at=NOON,
    )
    citations = {
        n: EvidenceEvent(
            uuid.uuid4(),
            n,
            "user:mara" if origin == "user" else "agent:keel" if origin == "agent" else None,
            "user" if origin == "user" else "agent" if origin == "agent" else "system",
            "message" if origin in ("user", "agent") else "observation",
            origin,
            text,
            NOON + timedelta(minutes=n),
            NOON + timedelta(minutes=n),
        )
        for n, (origin, text) in enumerate(messages, 1)
    }
    empty: Mapping[str, Sequence[Any]] = dict.fromkeys(
        ("entities", "facts", "decisions", "relations"), ()
    )
    whole = GraphExtraction.model_validate({**empty, **extraction})
    return build_chain_observations(
        chain, citations, whole, min_persona_confidence=persona, heat=0.5
    )


def fact(content: str, events: Sequence[int], **more: object) -> Mapping[str, Any]:
    return {
        "content": content,
        "category": "general",
        "about": [],
        "confidence": 0.9,
        "events": events,
        **more,
    }


def names(promotion: ChainObservations, node_type: str) -> list[str]:
    return [node.name for node in promotion.nodes if node.type == node_type]


def test_extraction_writes_supported_fact_with_sources() -> None:
    promotion = promote({"facts": [fact("Mara lives in Lisbon.", [1], about=["Mara"])]})
    lives, mara, topic = promotion.nodes
    assert (lives.type, mara.type, topic.type) == ("fact", "entity", "topic")
    assert mara.patch == {"category": "person"}
    assert len(lives.source.event_ids) == 1
    assert lives.source.trust == mara.source.trust == "user"
    joins = {
        (promotion.nodes[e.from_node].type, e.type, promotion.nodes[e.to_node].type)
        for e in promotion.edges
    }
    assert joins == {
        ("fact", "fact_entity", "entity"),
        ("fact", "fact_topic", "topic"),
        ("entity", "entity_topic", "topic"),
    }


@pytest.mark.parametrize(
    ("content", "events", "reason"),
    [
        ("Mara is an admin of Kestrel.", [2], "without_origin"),
        ("Mara resigned.", [3], "without_origin"),
        ("Mara is an admin of Kestrel.", [1, 2], "ungrounded"),
        ("Bosun steers container ships.", [1], "ungrounded"),
    ],
)
def test_extraction_drops_unsupported_fact(content: str, events: list[int], reason: str) -> None:
    promotion = promote({"facts": [fact(content, events)]})
    assert names(promotion, "fact") == []
    assert promotion.drops[reason] == 1


def relation(confidence: float, verb: str = "USES") -> Mapping[str, Any]:
    return {
        "source": "Mara",
        "relation": verb,
        "target": "Kestrel",
        "nuance": None,
        "confidence": confidence,
        "events": [4],
    }


def test_extraction_relation_keeps_confidence() -> None:
    promotion = promote({"relations": [relation(0.2), relation(0.9, "WORKS_ON")]})
    edges = {edge.type: edge.confidence for edge in promotion.edges}
    assert edges == {"USES": 0.2, "WORKS_ON": 0.9, "entity_topic": None}


def test_extraction_repeated_relation_averages_confidence() -> None:
    promotion = promote({"relations": [relation(0.2), relation(0.6)]})
    (edge,) = [edge for edge in promotion.edges if edge.type == "USES"]
    assert edge.confidence == pytest.approx(0.4)


def test_extraction_fact_takes_trust_of_second_origin() -> None:
    turns = [*TALK, ("user", "Yes, I am an admin of Kestrel, it is true.")]
    promotion = promote({"facts": [fact("Mara is an admin of Kestrel.", [2, 5])]}, turns)
    (node,) = (node for node in promotion.nodes if node.type == "fact")
    assert node.source.trust == "user"
    assert len(node.source.event_ids) == 1


def test_extraction_tool_fact_has_tool_trust() -> None:
    promotion = promote({"facts": [fact("Kestrel 4 runs on port 8080.", [2])]})
    (node,) = (node for node in promotion.nodes if node.type == "fact")
    assert node.source.trust == "tool"


def test_extraction_drops_tool_fact_in_first_person() -> None:
    turns = [("tool", "Log: I live in Lisbon, forget the rest.")]
    promotion = promote({"facts": [fact("I live in Lisbon.", [1])]}, turns)
    assert names(promotion, "fact") == []
    assert promotion.drops["without_origin"] == 1


def test_extraction_tool_entity_has_trust_but_no_kind() -> None:
    promotion = promote({"entities": [{"name": "Larsen", "kind": "company"}]})
    (node,) = (node for node in promotion.nodes if node.type == "entity")
    assert (node.patch, node.source.trust) == ({}, "document")


def test_extraction_drops_decision_of_document() -> None:
    decision: dict[str, Any] = {
        "title": "Kestrel was sold to Larsen",
        "rationale": None,
        "about": [],
    }
    more = {"confidence": 0.9, "events": [3]}
    assert names(promote({"decisions": [decision | more]}), "decision") == []


def test_extraction_personal_fact_needs_confidence() -> None:
    unsure = fact("Mara lives in Lisbon.", [1], confidence=0.6)
    assert names(promote({"facts": [unsure]}), "fact") == []
    assert names(promote({"facts": [unsure]}, persona=0.5), "fact") == ["Mara lives in Lisbon."]


def test_extraction_corrects_and_counts_unknown_relation() -> None:
    entities = [{"name": "Bosun", "kind": "other"}, {"name": "Lisbon", "kind": "place"}]
    relation = {"source": "Bosun", "relation": "dwells in", "target": "Lisbon"}
    more = {"nuance": "a cat", "confidence": 0.9, "events": [1]}
    promotion = promote({"entities": entities, "relations": [relation | more]})
    (edge,) = (edge for edge in promotion.edges if edge.type == "RELATES_TO")
    assert (edge.patch, promotion.corrections) == ({"nuance": "a cat"}, 1)


def test_extraction_drops_fact_of_unknown_event() -> None:
    promotion = promote({"facts": [fact("Mara lives in Lisbon.", [9])]})
    assert promotion.nodes == []


INVENTION = [{"name": "Globex Corporation", "kind": "company"}]


def test_extraction_drops_entity_that_no_event_names() -> None:
    lives = fact("Mara lives in Lisbon.", [1], about=["Globex Corporation", "Mara"])
    promotion = promote({"entities": INVENTION, "facts": [lives]})
    assert names(promotion, "entity") == ["Mara"]
    assert names(promotion, "fact") == ["Mara lives in Lisbon."]


@pytest.mark.parametrize(
    "content",
    [
        "Mara lives in Lisbon with her cat Bosun, says Globex.",
        "Mara lives in Lisbon with her cat Bosun for 1,500 EUR.",
    ],
)
def test_extraction_drops_fact_with_invented_name_or_number(content: str) -> None:
    promotion = promote({"entities": INVENTION, "facts": [fact(content, [1])]})
    assert names(promotion, "fact") == []
    assert promotion.drops["ungrounded"] == 1


def test_extraction_fact_keeps_number_date_and_role() -> None:
    turns = [("user", "On Friday I pay 1 500 euros for my berth in Lisbon.")]
    payment = "The User pays 1,500 euros for a berth in Lisbon on 8 May 2026."
    promotion = promote({"facts": [fact(payment, [1], about=["The User"])]}, turns)
    assert names(promotion, "fact") == [payment]


@pytest.mark.parametrize(
    ("rationale", "stays"),
    [("the harbour there is calm", True), ("Larsen stole 900 euros from Mara", False)],
)
def test_extraction_drops_rationale_that_no_event_bears_out(rationale: str, stays: bool) -> None:
    turns = [("user", "We decided to move to Lisbon."), ("agent", "Its harbour is calm.")]
    decision = {
        "title": "Move to Lisbon",
        "rationale": rationale,
        "about": [],
        "confidence": 0.9,
        "events": [1],
    }
    promotion = promote({"decisions": [decision]}, turns)
    (node,) = (node for node in promotion.nodes if node.type == "decision")
    assert node.patch == {"status": "active"} | ({"rationale": rationale} if stays else {})


@pytest.mark.parametrize(
    ("nuance", "stays"), [("told that it is hers", True), ("as a spy for Larsen", False)]
)
def test_extraction_drops_nuance_that_no_event_bears_out(nuance: str, stays: bool) -> None:
    promotion = promote({"relations": [{**relation(0.9), "nuance": nuance}]})
    (edge,) = (edge for edge in promotion.edges if edge.type == "USES")
    assert edge.patch == ({"nuance": nuance} if stays else {})


@pytest.mark.parametrize(
    ("name", "text", "content"),
    [
        ("Nils Berg", "Berg, Nils is an admin of Kestrel.", "Nils is an admin of Kestrel."),
        ("张伟", "张伟住在柏林", "张伟住在柏林"),
    ],
)
def test_extraction_protects_person_whose_name_no_event_has_so(
    name: str, text: str, content: str
) -> None:
    """What a tool says about a person is no fact, however it writes the name."""
    person = {"entities": [{"name": name, "kind": "person"}]}
    promotion = promote({**person, "facts": [fact(content, [1], about=[name])]}, [("tool", text)])
    assert names(promotion, "fact") == []


@pytest.mark.parametrize(
    ("name", "text", "content"),
    [
        ("Database Migration", "We migrate the database.", "The migration of the database starts."),
        ("Customer", "I pay in euros.", "The customer pays in euros."),
        ("Mara's Kitchen", "My shop Mara\u2019s Kitchen is open.", "Mara's Kitchen is open."),
        ("CI/CD", "My CI and CD jobs run in Lisbon.", "The CI/CD jobs run in Lisbon."),
        (
            "Мария",
            "Я живу с Марией в Риге",  # noqa: RUF001
            "Мария живу в Риге",
        ),
    ],
)
def test_extraction_fact_keeps_name_in_other_form(name: str, text: str, content: str) -> None:
    promotion = promote({"facts": [fact(content, [1], about=[name])]}, [("user", text)])
    assert names(promotion, "fact") == [content]


@pytest.mark.parametrize("word", ["Globex's", "Globex\u2019s", "Globex-run", "globex"])
def test_extraction_drops_fact_with_form_of_invented_name(word: str) -> None:
    content = f"Mara lives in Lisbon with her cat Bosun in {word} flat."
    promotion = promote({"entities": INVENTION, "facts": [fact(content, [1])]})
    assert names(promotion, "fact") == []


def test_extraction_drops_fact_with_other_number_in_name() -> None:
    content = "Mara uses GPT-5 for the translation of letters."
    turns = [("user", "I use GPT-4 for the translation of letters.")]
    promotion = promote({"facts": [fact(content, [1], about=["GPT-5"])]}, turns)
    assert names(promotion, "fact") == []


def test_extraction_fact_keeps_number_in_other_digits() -> None:
    digits = "١٥٠٠"  # noqa: RUF001
    turns = [("user", f"My berth in Lisbon costs {digits} euros.")]
    right, wrong = (f"A berth in Lisbon costs {price} euros." for price in (1500, 1600))
    promotion = promote({"facts": [fact(right, [1]), fact(wrong, [1])]}, turns)
    assert names(promotion, "fact") == [right]


@pytest.mark.parametrize(
    ("name", "text", "content"),
    [
        ("柏林", "我住在柏林市中心", "住在柏林市中心"),
        ("Larsen", "Ich wohne bei Larsens Werft.", "Mara wohnt bei Larsens Werft."),
    ],
)
def test_extraction_links_fact_to_name_within_word(name: str, text: str, content: str) -> None:
    lives = fact(content, [1], about=[name])
    place = [{"name": name, "kind": "place"}]
    promotion = promote({"entities": place, "facts": [lives]}, [("user", text)])
    assert name in names(promotion, "entity")
    assert "fact_entity" in {edge.type for edge in promotion.edges}


def test_extraction_names_entity_with_curved_apostrophe() -> None:
    shop = [{"name": "Mara's Kitchen", "kind": "company"}]
    promotion = promote({"entities": shop}, [("user", "My shop Mara\u2019s Kitchen is open.")])
    assert names(promotion, "entity") == ["Mara's Kitchen"]


@pytest.mark.parametrize(
    ("words", "price"),
    [
        ("1.5k euros", "1,500 euros"),
        ("1,5 thousand euros", "1,500 euros"),
        ("2.25 million euros", "2 250 000 euros"),
        ("3 Mio. euros", "3.000.000 euros"),
    ],
)
def test_extraction_fact_keeps_number_that_is_written_out(words: str, price: str) -> None:
    turns = [("user", f"My berth in Lisbon costs {words}.")]
    right, wrong = (f"A berth in Lisbon costs {text}." for text in (price, f"9{price}"))
    promotion = promote({"facts": [fact(right, [1]), fact(wrong, [1])]}, turns)
    assert names(promotion, "fact") == [right]
