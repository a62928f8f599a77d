"""Finds facts, decisions and relations for the knowledge graph, by a few forms of English
sentences: `fact_forms` has those of facts and relations.

Only what people say in messages is read. "I" becomes the speaker's name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from strandline.llm.heuristic.digest import MARKUP
from strandline.llm.heuristic.fact_forms import (
    DOUBTS,
    MAX_CONTENT,
    MIN_WORDS,
    SELF,
    SpokenSentence,
    StatedFact,
    find_stated_facts,
)
from strandline.llm.heuristic.sentences import MAX_EVENT_CHARACTERS, is_log_or_table
from strandline.llm.heuristic.slots import (
    compare_slot_statements,
    read_slot_of_fact,
    read_slot_statements,
    to_stated_fact,
)
from strandline.llm.heuristic.words import split_sentences
from strandline.llm.types import (
    Entity,
    ExtractedDecision,
    ExtractedFact,
    ExtractedRelation,
    GraphExtraction,
    PromptEvent,
)

_MAX_SENTENCE = 400
_MAX_ITEMS = 60
_MAX_DECISIONS = 30

_DECISION = re.compile(
    r"\b(?:we|i)(?:'ve| have)? (?:finally |just )?(?:decided|settled|agreed) "
    r"(?:to|on|that|for|against)\b"
    r"|\b(?:we|i)(?:'ve| have)? (?:chose|chosen|picked|went with|gone with) (?!it\b|up\b)"
    r"|^(?:let's|we'll|i'll|then |so )*\s*(?:go|going) with (?!it\b|you\b|me\b)"
    r"|^(?:(?:ok(?:ay)?|right|so|fine)[,:]? )?(?:decision|decided|agreed): \S"
    r"|^[\w' ]{2,40} it is\b(?: then)?(?=[,.!]|$)"
    r"|^(?:(?:ok(?:ay)?|so|then|right)[,:]? )?let's (?:take|use|pick|choose|settle on|stick with"
    r"|switch(?: over)?(?: to|:)) (?!it\b|this\b|that\b|the (?:time|chance|opportunity)\b"
    r"|a (?:look|break|moment|minute|step|walk)\b)"
    r"|^(?:please )?(?:never|always) (?:push|commit|merge|deploy|use|run|call|write|send|store|"
    r"keep|log|delete|release|ship|test|review|ask|answer)\b"
    r"|\bfrom now on\b",
    re.IGNORECASE,
)
_NO_DECISION = re.compile(r"\b(?:i am|i'm|you are|you're|not sure|whether|had decided|yet)\b", re.I)
_REASON = re.compile(r",? (?:because|since|so that) (?P<why>.+)$", re.IGNORECASE)


def extract_by_sentence_forms(
    events: Sequence[PromptEvent], entities: Sequence[Entity]
) -> GraphExtraction:
    """What the events state, and the entities, which are named already."""
    names = {entity.name for entity in entities}
    facts: dict[str, ExtractedFact] = {}
    relations: dict[tuple[str, str, str], ExtractedRelation] = {}
    decisions: dict[str, ExtractedDecision] = {}
    for sentence in _iter_user_sentences(events):
        for fact in find_stated_facts(sentence, names):
            _add_fact(facts, fact, sentence, names)
            if fact.pair:
                _add_relation(relations, fact.pair, fact.confidence, sentence.number)
        if decision := _find_decision(sentence, names):
            first = decisions.setdefault(decision.title.casefold(), decision)
            _add_citation(first.events, sentence.number)
    for message in _iter_user_messages(events):
        _add_slot_facts(facts, message, names)
    return GraphExtraction(
        entities=list(entities)[:_MAX_ITEMS],
        facts=list(facts.values())[:_MAX_ITEMS],
        decisions=list(decisions.values())[:_MAX_DECISIONS],
        relations=list(relations.values())[:_MAX_ITEMS],
    )


def capitalize_display_name(participant: str) -> str:
    """The name of `user:mara` in a sentence: Mara."""
    name = participant.partition(":")[2] or participant
    return name[:1].upper() + name[1:] if name.isalpha() else name


def _iter_user_messages(events: Sequence[PromptEvent]) -> Iterator[SpokenSentence]:
    for number, event in enumerate(events, 1):
        if (
            event.role != "user"
            or event.type != "message"
            or not event.speaker
            or is_log_or_table(event)
        ):
            continue
        text = MARKUP.sub(r"\1", event.text[:MAX_EVENT_CHARACTERS])
        name = capitalize_display_name(event.speaker)
        yield SpokenSentence(text.replace("’", "'"), name, number)  # noqa: RUF001


def _iter_user_sentences(events: Sequence[PromptEvent]) -> Iterator[SpokenSentence]:
    for message in _iter_user_messages(events):
        for sentence in split_sentences(message.text):
            if len(sentence) <= _MAX_SENTENCE:
                yield message._replace(text=sentence)


def _add_fact(
    facts: dict[str, ExtractedFact], fact: StatedFact, sentence: SpokenSentence, names: set[str]
) -> None:
    about = [n for n in (*sorted(names), sentence.speaker) if _mentions_name(fact.content, n)]
    entry = ExtractedFact(
        content=fact.content,
        category=fact.category,
        about=list(dict.fromkeys(about))[:20],
        confidence=fact.confidence,
        events=[sentence.number],
    )
    _add_citation(facts.setdefault(entry.content.casefold(), entry).events, sentence.number)


def _add_slot_facts(
    facts: dict[str, ExtractedFact], message: SpokenSentence, names: set[str]
) -> None:
    """Add what a message states in the slots of its speaker's life, but for what another form has
    found there."""
    said_here = [fact.content for fact in facts.values() if message.number in fact.events]
    filled = [slot for content in said_here if (slot := read_slot_of_fact(content)) is not None]
    for statement in read_slot_statements(message.text, message.speaker):
        fact = to_stated_fact(statement, message.speaker)
        if fact and not any(
            compare_slot_statements(one, statement) == "restates" for one in filled
        ):
            for key in _find_general_facts_with_value(facts, message.number, statement.value):
                del facts[key]  # the same, but of nobody
            _add_fact(facts, fact, message, names)


def _find_general_facts_with_value(
    facts: Mapping[str, ExtractedFact], number: int, value: str
) -> list[str]:
    """The keys of the general facts that only this event states, and that hold this value."""
    return [
        key
        for key, fact in facts.items()
        if (fact.category, fact.events) == ("general", [number]) and value in fact.content
    ]


def _add_citation(events: list[int], number: int) -> None:
    if number not in events and len(events) < 50:
        events.append(number)


def _mentions_name(text: str, name: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE))


def _add_relation(
    relations: dict[tuple[str, str, str], ExtractedRelation],
    pair: tuple[str, str, str, str],
    confidence: float,
    number: int,
) -> None:
    source, verb, target, nuance = pair
    relation = ExtractedRelation(
        source=source,
        relation=verb,
        target=target,
        nuance=nuance or None,
        confidence=confidence,
        events=[number],
    )
    _add_citation(relations.setdefault((source, verb, target), relation).events, number)


def _find_decision(sentence: SpokenSentence, names: set[str]) -> ExtractedDecision | None:
    text = sentence.text
    if DOUBTS.search(text) or _NO_DECISION.search(text) or not _DECISION.search(text):
        return None
    reason = _REASON.search(text)
    title = re.sub(_REASON, "", text).strip(" ,;:.!…-")
    title = SELF.sub(
        f"{sentence.speaker}'s", re.sub(r"\b[Ii](?:'ve| have)\b", sentence.speaker, title)
    )
    title = re.sub(r"\b[Ii]\b(?!')", sentence.speaker, title)
    if len(title.split()) < MIN_WORDS or len(title) > MAX_CONTENT:
        return None
    about = [name for name in sorted(names) if _mentions_name(title, name)]
    return ExtractedDecision(
        title=title[:1].upper() + title[1:],
        rationale=reason["why"].strip(" .!") if reason else None,
        about=about[:20],
        confidence=0.8,
        events=[sentence.number],
    )
