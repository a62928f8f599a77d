"""Finds facts, decisions and relations for the knowledge graph, by a few forms of English
sentences. What no form fits is left out: precision comes before recall.

Only what people say in messages is read. A sentence that asks, quotes, supposes or doubts states
nothing. "I" becomes the speaker's name, so that a fact is understood by itself.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from strandline.llm.heuristic.digest import MARKUP
from strandline.llm.heuristic.lines import MAX_EVENT_CHARACTERS, is_table
from strandline.llm.heuristic.words import is_ordinary, split_sentences
from strandline.llm.types import (
    Entity,
    ExtractedDecision,
    ExtractedFact,
    ExtractedRelation,
    Extraction,
    FactCategory,
    PromptEvent,
)

_MAX_SENTENCE = 400
_MAX_CONTENT = 240
_MAX_ITEMS = 60
_MAX_DECISIONS = 30
_MIN_WORDS = 3
"""A fact or a decision of fewer words says nothing by itself."""

_NAME_WORD = r"[A-Z][\w-]*\w(?:'(?!s\b)\w+)?"
_NAME = rf"{_NAME_WORD}(?: {_NAME_WORD}){{0,3}}"
_ROLE = r"[a-z]+(?: (?:officer|in law|[a-z]+er|[a-z]+or))?"
_I_AM, _I_HAVE = r"\b[Ii](?:['’]?m| am)", r"\b[Ii](?:['’]?ve| have)"  # noqa: RUF001
_TO_END = r"[^;:.!?…\n]*(?:[.:]\d[^;:.!?…\n]*)*"
"""To the end of the sentence; a mark within a number ends none."""
_CLAUSE_END = re.compile(
    r",? (?:but|because|though|although|unless|while|which|who|since|if|as) .*$"
    r"|, (?:and|so|or|please|then|though|by the way)\b.*$|\s+[-–—(].*$|,?\s*(?:anyway|though|too)$",  # noqa: RUF001
    re.IGNORECASE,
)
_DOUBTS = re.compile(
    r"\b(?:if|would|wouldn't|could|couldn't|might|maybe|perhaps|probably|wish|hope|suppose|imagine|"
    r"pretend|seems?|seemed|think|thought|guess|wonder|almost|nearly|joking|kidding|unless)\b"
    r"|[\"“”«»]|\?",
    re.IGNORECASE,
)
_FIRST_OR_SECOND = re.compile(
    r"\b(?:i|i['’](?:m|ve|ll|d)|me|mine|myself|we|we['’]\w+|us|our|ours|you|your|yours|you['’]\w+)\b",  # noqa: RUF001
    re.IGNORECASE,
)
_NOT_A_ROLE = frozenset(
    ("dear", "own", "old", "new", "poor", "late", "best", "first", "last", "whole", "good", "only")
)
_NO_OBJECT = (
    r"(?!(?:it|that|this|these|those|them|him|her|you|how|what|when|where|to|the (?:idea|thought|"
    r"sound|look|way|fuss)|your|one|both|either|having|being)\b)"
)
_SELF = re.compile(r"\b[Mm]y\b")
_THIRD = {"teach": "teaches", "study": "studies", "bought": "bought", "sold": "sold"}
"""Verbs after a name, where it is not by an s alone."""


class _Spoken(NamedTuple):
    """A sentence, who says it, and the number of its event."""

    text: str
    speaker: str
    number: int


class _Found(NamedTuple):
    """What a sentence states."""

    content: str
    category: FactCategory
    confidence: float
    pair: tuple[str, str, str, str] | None = None
    """A relation: from, the relation, to, its nuance."""


type _Build = Callable[[re.Match[str], str], _Found | None]


def extract(events: Sequence[PromptEvent], named: Sequence[Entity]) -> Extraction:
    """What the events state, and the entities that are named already."""
    names = {entity.name for entity in named}
    facts: dict[str, ExtractedFact] = {}
    relations: dict[tuple[str, str, str], ExtractedRelation] = {}
    decisions: dict[str, ExtractedDecision] = {}
    for spoken in _iter_sentences(events):
        for found in _find_facts(spoken, names):
            about = [name for name in (*sorted(names), spoken.speaker) if _mentions(found, name)]
            fact = ExtractedFact(
                content=found.content,
                category=found.category,
                about=list(dict.fromkeys(about))[:20],
                confidence=found.confidence,
                events=[spoken.number],
            )
            _cite(facts.setdefault(fact.content.casefold(), fact).events, spoken.number)
            if found.pair:
                _add_relation(relations, found.pair, found.confidence, spoken.number)
        if decision := _find_decision(spoken, names):
            known = decisions.setdefault(decision.title.casefold(), decision)
            _cite(known.events, spoken.number)
    return Extraction(
        entities=list(named)[:_MAX_ITEMS],
        facts=list(facts.values())[:_MAX_ITEMS],
        decisions=list(decisions.values())[:_MAX_DECISIONS],
        relations=list(relations.values())[:_MAX_ITEMS],
    )


def name_speaker(participant: str) -> str:
    """The name of `user:mara` in a sentence: Mara."""
    name = participant.partition(":")[2] or participant
    return name[:1].upper() + name[1:] if name.isalpha() else name


def _iter_sentences(events: Sequence[PromptEvent]) -> Iterator[_Spoken]:
    for number, event in enumerate(events, 1):
        if event.role != "user" or event.type != "message" or not event.speaker or is_table(event):
            continue
        text = MARKUP.sub(r"\1", event.text[:MAX_EVENT_CHARACTERS])
        speaker = name_speaker(event.speaker)
        for sentence in split_sentences(text):
            if len(sentence) <= _MAX_SENTENCE:
                yield _Spoken(sentence.replace("’", "'"), speaker, number)  # noqa: RUF001


def _cite(events: list[int], number: int) -> None:
    if number not in events and len(events) < 50:
        events.append(number)


def _mentions(found: _Found, name: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", found.content, re.IGNORECASE))


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
    _cite(relations.setdefault((source, verb, target), relation).events, number)


# facts --------------------------------------------------------------------------------------------


def _find_facts(spoken: _Spoken, names: set[str]) -> Iterator[_Found]:
    reminder = _REMINDER.match(spoken.text)
    text = spoken.text if reminder is None else reminder["rest"]
    if _DOUBTS.search(text):
        return
    is_found = False
    for form, build in _FORMS:
        for match in form.finditer(text):
            found = build(match, spoken.speaker)
            if found and _is_told(found, match, names):
                is_found = True
                yield found
    if is_found:
        return
    match = _DATED.match(text)
    if match and (not match.groupdict()["name"] or _is_name(match["name"], names)):
        content = _to_third_person(_cut(text), spoken.speaker)
        if content and re.search(r"\d", content):
            yield _Found(content, "general", 0.8)
            return
    if reminder:
        content = _to_third_person(_cut(text, whole=True), spoken.speaker)
        if content:
            yield _Found(content, "general", 0.9)


def _is_told(found: _Found, match: re.Match[str], names: set[str]) -> bool:
    is_long_enough = len(found.content.split()) >= _MIN_WORDS and len(found.content) <= _MAX_CONTENT
    parts = [match.groupdict().get(part) for part in ("name", "owner")]
    return is_long_enough and all(_is_name(part, names) for part in parts if part)


def _is_name(text: str, names: set[str]) -> bool:
    """Whether it is a name of the chain, or its first word is none of everyday English."""
    return text in names or not is_ordinary(text.split()[0])


def _cut(text: str, *, whole: bool = False) -> str:
    """The first clause of a sentence; with `whole` all of it."""
    clause = text if whole else _CLAUSE_END.sub("", text)
    return clause.strip(" ,;:.!…-")


def _to_third_person(clause: str, speaker: str) -> str | None:
    """A clause with the speaker's name; None where it still speaks of somebody by a pronoun."""
    for pattern, replacement in (
        (rf"{_I_AM}\b", f"{speaker} is"),
        (rf"{_I_HAVE}(?: got)?\b", f"{speaker} has"),
        (r"\b[Ii] (?=was\b|will\b|had\b|can\b|must\b|[a-z]+ed\b)", f"{speaker} "),
        (r"\b[Ii]'ll\b", f"{speaker} will"),
        (r"\b[Ii] ([a-z]+)\b(?<!s)", rf"{speaker} \1s"),
    ):
        clause = re.sub(rf"^{pattern}", replacement, clause)
    clause = _SELF.sub(f"{speaker}'s", clause)
    if _FIRST_OR_SECOND.search(clause) or len(clause.split()) < _MIN_WORDS:
        return None
    return _close(clause[:1].upper() + clause[1:])


def _close(clause: str) -> str:
    return f"{clause.strip()}."


def _of_speaker(category: FactCategory, confidence: float, says: str = "") -> _Build:
    """A fact about the speaker: the name, `says` or the verb of the sentence, and its rest."""

    def build(match: re.Match[str], speaker: str) -> _Found | None:
        groups = match.groupdict()
        verb = groups.get("verb") or ""
        verb = says or _THIRD.get(verb, f"{verb}s")
        rest = _cut(_SELF.sub(f"{speaker}'s", match["rest"]))
        if not rest or _FIRST_OR_SECOND.search(rest):
            return None
        return _Found(_close(f"{speaker} {verb} {rest}"), category, confidence)

    return build


def _allergy(match: re.Match[str], speaker: str) -> _Found:
    return _Found(_close(f"{speaker} has {match['what']}"), "personal", 0.95)


def _relative(match: re.Match[str], speaker: str) -> _Found | None:
    """My sister Linnea; Ines Farrow, our grant officer; Pearl is Mum's sister."""
    groups = match.groupdict()
    name, role, owner = match["name"], match["role"].strip(), groups.get("owner") or speaker
    if role.split()[0] in _NOT_A_ROLE or name == owner or role.endswith("ing"):
        return None
    content = _close(f"{name} is {owner}'s {role}")
    return _Found(content, "relationship", 0.9, (name, "RELATES_TO", owner, role))


def _crew(match: re.Match[str], speaker: str) -> _Found | None:
    """The Hester Gray, skipper Wim Dockett."""
    del speaker
    name, role, owner = match["name"], match["role"], match["owner"]
    if role in _NOT_A_ROLE or is_ordinary(owner.split()[0]):
        return None
    content = _close(f"{name} is the {role} of the {owner}")
    return _Found(content, "professional", 0.8, (name, "RELATES_TO", owner, role))


def _activity(verb: str, says: str) -> _Build:
    """I'm working on Petrel; Nils uses Kestrel."""

    def build(match: re.Match[str], speaker: str) -> _Found:
        who, what = match.groupdict().get("owner") or speaker, match["name"]
        return _Found(_close(f"{who} {says} {what}"), "professional", 0.8, (who, verb, what, ""))

    return build


_FORMS: Sequence[tuple[re.Pattern[str], _Build]] = (
    (
        re.compile(rf"{_I_AM} (?:\w+ly )?allergic to (?P<rest>[^,;:.!?…\n]+)"),
        _of_speaker("personal", 0.95, "is allergic to"),
    ),
    (re.compile(rf"{_I_HAVE}(?: got)? (?P<what>an? (?:[\w-]+ ){{1,3}}allergy)\b"), _allergy),
    (
        re.compile(r"\b[Ii] (?:now |still )?live (?P<rest>(?:in|at|on|near|with) [^;:.!?…\n]+)"),
        _of_speaker("personal", 0.9, "lives"),
    ),
    (
        re.compile(rf"(?:{_I_AM} moving|{_I_HAVE} moved) (?P<rest>(?:to|into|from|on) {_TO_END})"),
        _of_speaker("personal", 0.9, "moves"),
    ),
    (
        re.compile(r"\b[Ii] (?P<verb>work) (?P<rest>(?:for|at|as|with) [^;:.!?…\n]+)"),
        _of_speaker("professional", 0.9),
    ),
    (
        re.compile(rf"\b[Ii] was (?P<rest>born (?:in|on|at) {_TO_END})"),
        _of_speaker("personal", 0.95, "was"),
    ),
    (
        re.compile(rf"\b[Mm]y (?P<rest>birthday is {_TO_END})"),
        lambda match, speaker: _Found(
            _close(f"{speaker}'s {_cut(match['rest'])}"), "personal", 0.95
        ),
    ),
    (
        re.compile(
            r"\b[Ii] (?:really |also |always )*(?P<verb>like|love|prefer|hate|enjoy|dislike) "
            rf"(?P<rest>{_NO_OBJECT}[^;:.!?…\n]+)"
        ),
        _of_speaker("preference", 0.8),
    ),
    (
        re.compile(
            r"\b[Ii](?:'ve| have)? (?P<verb>own|bought|sold|play|speak|teach|study) "
            rf"(?P<rest>{_NO_OBJECT}[^,;:.!?…\n]+)"
        ),
        _of_speaker("personal", 0.8),
    ),
    (re.compile(rf"\b(?:[Mm]y|[Oo]ur) (?P<role>[a-z]+),? (?P<name>{_NAME})"), _relative),
    (
        re.compile(rf"\b(?P<name>{_NAME})(?:, | is )(?:my|our) (?P<role>{_ROLE})(?=[,.;!]|$)"),
        _relative,
    ),
    (
        re.compile(rf"\b(?P<name>{_NAME}) is (?P<owner>{_NAME})'s (?P<role>{_ROLE})(?=[,.;!]|$)"),
        _relative,
    ),
    (re.compile(rf"\b[Tt]he (?P<owner>{_NAME}), (?P<role>[a-z]+) (?P<name>{_NAME})"), _crew),
    (
        re.compile(rf"(?:{_I_AM} working|\b[Ii] work) on (?:the )?(?P<name>{_NAME})"),
        _activity("WORKS_ON", "works on"),
    ),
    (re.compile(rf"(?:{_I_AM} using|\b[Ii] use) (?P<name>{_NAME})"), _activity("USES", "uses")),
    (
        re.compile(rf"\b(?P<owner>{_NAME}) uses (?:the )?(?P<name>{_NAME})"),
        _activity("USES", "uses"),
    ),
    (
        re.compile(rf"\b(?P<owner>{_NAME}) works (?:on|for|at) (?:the )?(?P<name>{_NAME})"),
        _activity("WORKS_ON", "works on"),
    ),
    (
        re.compile(rf"{_I_AM} struggling with (?P<name>{_NAME})"),
        _activity("STRUGGLES_WITH", "struggles with"),
    ),
    (
        re.compile(rf"{_I_AM} interested in (?P<name>{_NAME})"),
        _activity("EXPRESSED_INTEREST", "is interested in"),
    ),
)
_DATED = re.compile(
    rf"(?:(?:[Mm]y [a-z]+(?: {_NAME})?|(?P<name>{_NAME}?)(?:'s(?: [a-z-]+){{1,3}})?"
    r"|(?:The|Our|My) [\w'-]+(?: [\w'-]+){0,4}?)) "
    r"(?:is|are|was|were|has|will|costs?|expires?|starts?|begins?|ends?|opens?|closes?|leaves?|"
    r"arrives?|charged|weighs?|measures?) (?=.*\d)"
)
"""What is, was or will be, with a figure or a date."""
_REMINDER = re.compile(
    r"(?:please |and |but )?(?:remember|note|keep in mind|don't forget|bear in mind|for the record)"
    r"(?:[,:]| that|, that) (?!to\b)(?P<rest>.+)$",
    re.IGNORECASE,
)


# decisions ----------------------------------------------------------------------------------------

_DECISION = re.compile(
    r"\b(?:we|i)(?:'ve| have)? (?:finally |just )?(?:decided|settled|agreed) "
    r"(?:to|on|that|for|against)\b"
    r"|\b(?:we|i)(?:'ve| have)? (?:chose|chosen|picked|went with|gone with) (?!it\b|up\b)"
    r"|^(?:let's|we'll|i'll|then |so )*\s*(?:go|going) with (?!it\b|you\b|me\b)"
    r"|^(?:decision|decided|agreed): \S|^[\w' ]{2,40} it is\b(?=[,.!]|$)"
    r"|\bfrom now on\b",
    re.IGNORECASE,
)
_NO_DECISION = re.compile(r"\b(?:i am|i'm|you are|you're|not sure|whether|had decided|yet)\b", re.I)
_REASON = re.compile(r",? (?:because|since|so that) (?P<why>.+)$", re.IGNORECASE)


def _find_decision(spoken: _Spoken, names: set[str]) -> ExtractedDecision | None:
    text = spoken.text
    if _DOUBTS.search(text) or _NO_DECISION.search(text) or not _DECISION.search(text):
        return None
    reason = _REASON.search(text)
    title = re.sub(_REASON, "", text).strip(" ,;:.!…-")
    title = _SELF.sub(
        f"{spoken.speaker}'s", re.sub(r"\b[Ii](?:'ve| have)\b", spoken.speaker, title)
    )
    title = re.sub(r"\b[Ii]\b(?!')", spoken.speaker, title)
    if len(title.split()) < _MIN_WORDS or len(title) > _MAX_CONTENT:
        return None
    about = [name for name in sorted(names) if _mentions(_Found(title, "general", 0), name)]
    return ExtractedDecision(
        title=title[:1].upper() + title[1:],
        rationale=reason["why"].strip(" .!") if reason else None,
        about=about[:20],
        confidence=0.8,
        events=[spoken.number],
    )
