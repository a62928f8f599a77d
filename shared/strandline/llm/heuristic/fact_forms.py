"""The forms of English sentences that state a fact about somebody or something.

What no form fits is left out: precision comes before recall. A sentence that asks, quotes, supposes
or doubts states nothing. "I" becomes the speaker's name, so that a fact is understood by itself.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from strandline.llm.heuristic.words import is_ordinary
from strandline.llm.types import FactCategory

MAX_CONTENT = 240
MIN_WORDS = 3
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
DOUBTS = re.compile(
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
SELF = re.compile(r"\b[Mm]y\b")
_THIRD = {"teach": "teaches", "study": "studies", "bought": "bought", "sold": "sold"}
"""Verbs after a name, where it is not by an s alone."""


class SpokenSentence(NamedTuple):
    """A sentence, who says it, and the number of its event."""

    text: str
    speaker: str
    number: int


class StatedFact(NamedTuple):
    """What a sentence states."""

    content: str
    category: FactCategory
    confidence: float
    pair: tuple[str, str, str, str] | None = None
    """A relation: from, the relation, to, its nuance."""


type _Build = Callable[[re.Match[str], str], StatedFact | None]


def find_stated_facts(sentence: SpokenSentence, names: set[str]) -> Iterator[StatedFact]:
    """The facts that a sentence states; `names` are those of the chain's entities."""
    reminder = _REMINDER.match(sentence.text)
    text = sentence.text if reminder is None else reminder["rest"]
    if DOUBTS.search(text):
        return
    is_found = False
    for form, build in _FORMS:
        for match in form.finditer(text):
            fact = build(match, sentence.speaker)
            if fact and _is_valid_fact(fact, match, names):
                is_found = True
                yield fact
    if is_found:
        return
    match = _STATEMENT_WITH_FIGURE.match(text)
    if match and (not match.groupdict()["name"] or _may_be_name(match["name"], names)):
        content = _to_third_person(_take_first_clause(text), sentence.speaker)
        if content and re.search(r"\d", content):
            yield StatedFact(content, "general", 0.8)
            return
    if reminder:
        content = _to_third_person(_take_first_clause(text, whole=True), sentence.speaker)
        if content:
            yield StatedFact(content, "general", 0.9)


def _is_valid_fact(fact: StatedFact, match: re.Match[str], names: set[str]) -> bool:
    is_long_enough = len(fact.content.split()) >= MIN_WORDS and len(fact.content) <= MAX_CONTENT
    parts = [match.groupdict().get(part) for part in ("name", "owner")]
    return is_long_enough and all(_may_be_name(part, names) for part in parts if part)


def _may_be_name(text: str, names: set[str]) -> bool:
    """Whether it is a name of the chain, or its first word is none of everyday English."""
    return text in names or not is_ordinary(text.split()[0])


def _take_first_clause(text: str, *, whole: bool = False) -> str:
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
    clause = SELF.sub(f"{speaker}'s", clause)
    if _FIRST_OR_SECOND.search(clause) or len(clause.split()) < MIN_WORDS:
        return None
    return _end_with_full_stop(clause[:1].upper() + clause[1:])


def _end_with_full_stop(clause: str) -> str:
    return f"{clause.strip()}."


def _make_speaker_fact_builder(category: FactCategory, confidence: float, says: str = "") -> _Build:
    """A fact about the speaker: the name, `says` or the verb of the sentence, and its rest."""

    def build(match: re.Match[str], speaker: str) -> StatedFact | None:
        groups = match.groupdict()
        verb = groups.get("verb") or ""
        verb = says or _THIRD.get(verb, f"{verb}s")
        rest = _take_first_clause(SELF.sub(f"{speaker}'s", match["rest"]))
        if not rest or _FIRST_OR_SECOND.search(rest):
            return None
        return StatedFact(_end_with_full_stop(f"{speaker} {verb} {rest}"), category, confidence)

    return build


def _build_allergy_fact(match: re.Match[str], speaker: str) -> StatedFact:
    return StatedFact(_end_with_full_stop(f"{speaker} has {match['what']}"), "personal", 0.95)


def _build_relationship_fact(match: re.Match[str], speaker: str) -> StatedFact | None:
    """My sister Linnea; Ines Farrow, our grant officer; Pearl is Mum's sister."""
    groups = match.groupdict()
    name, role, owner = match["name"], match["role"].strip(), groups.get("owner") or speaker
    if role.split()[0] in _NOT_A_ROLE or name == owner or role.endswith("ing"):
        return None
    content = _end_with_full_stop(f"{name} is {owner}'s {role}")
    return StatedFact(content, "relationship", 0.9, (name, "RELATES_TO", owner, role))


def _build_role_holder_fact(match: re.Match[str], speaker: str) -> StatedFact | None:
    """The Hester Gray, skipper Wim Dockett."""
    del speaker
    name, role, owner = match["name"], match["role"], match["owner"]
    if role in _NOT_A_ROLE or is_ordinary(owner.split()[0]):
        return None
    content = _end_with_full_stop(f"{name} is the {role} of the {owner}")
    return StatedFact(content, "professional", 0.8, (name, "RELATES_TO", owner, role))


def _make_relation_fact_builder(verb: str, says: str) -> _Build:
    """I'm working on Petrel; Nils uses Kestrel."""

    def build(match: re.Match[str], speaker: str) -> StatedFact:
        who, what = match.groupdict().get("owner") or speaker, match["name"]
        return StatedFact(
            _end_with_full_stop(f"{who} {says} {what}"), "professional", 0.8, (who, verb, what, "")
        )

    return build


_FORMS: Sequence[tuple[re.Pattern[str], _Build]] = (
    (
        re.compile(rf"{_I_AM} (?:\w+ly )?allergic to (?P<rest>[^,;:.!?…\n]+)"),
        _make_speaker_fact_builder("personal", 0.95, "is allergic to"),
    ),
    (
        re.compile(rf"{_I_HAVE}(?: got)? (?P<what>an? (?:[\w-]+ ){{1,3}}allergy)\b"),
        _build_allergy_fact,
    ),
    (
        re.compile(r"\b[Ii] (?:now |still )?live (?P<rest>(?:in|at|on|near|with) [^;:.!?…\n]+)"),
        _make_speaker_fact_builder("personal", 0.9, "lives"),
    ),
    (
        re.compile(rf"(?:{_I_AM} moving|{_I_HAVE} moved) (?P<rest>(?:to|into|from|on) {_TO_END})"),
        _make_speaker_fact_builder("personal", 0.9, "moves"),
    ),
    (
        re.compile(r"\b[Ii] (?P<verb>work) (?P<rest>(?:for|at|as|with) [^;:.!?…\n]+)"),
        _make_speaker_fact_builder("professional", 0.9),
    ),
    (
        re.compile(rf"\b[Ii] was (?P<rest>born (?:in|on|at) {_TO_END})"),
        _make_speaker_fact_builder("personal", 0.95, "was"),
    ),
    (
        re.compile(rf"\b[Mm]y (?P<rest>birthday is {_TO_END})"),
        lambda match, speaker: StatedFact(
            _end_with_full_stop(f"{speaker}'s {_take_first_clause(match['rest'])}"),
            "personal",
            0.95,
        ),
    ),
    (
        re.compile(
            r"\b[Ii] (?:really |also |always )*(?P<verb>like|love|prefer|hate|enjoy|dislike) "
            rf"(?P<rest>{_NO_OBJECT}[^;:.!?…\n]+)"
        ),
        _make_speaker_fact_builder("preference", 0.8),
    ),
    (
        re.compile(
            r"\b[Ii](?:'ve| have)? (?P<verb>own|bought|sold|play|speak|teach|study) "
            rf"(?P<rest>{_NO_OBJECT}[^,;:.!?…\n]+)"
        ),
        _make_speaker_fact_builder("personal", 0.8),
    ),
    (
        re.compile(rf"\b(?:[Mm]y|[Oo]ur) (?P<role>[a-z]+),? (?P<name>{_NAME})"),
        _build_relationship_fact,
    ),
    (
        re.compile(rf"\b(?P<name>{_NAME})(?:, | is )(?:my|our) (?P<role>{_ROLE})(?=[,.;!]|$)"),
        _build_relationship_fact,
    ),
    (
        re.compile(rf"\b(?P<name>{_NAME}) is (?P<owner>{_NAME})'s (?P<role>{_ROLE})(?=[,.;!]|$)"),
        _build_relationship_fact,
    ),
    (
        re.compile(rf"\b[Tt]he (?P<owner>{_NAME}), (?P<role>[a-z]+) (?P<name>{_NAME})"),
        _build_role_holder_fact,
    ),
    (
        re.compile(rf"(?:{_I_AM} working|\b[Ii] work) on (?:the )?(?P<name>{_NAME})"),
        _make_relation_fact_builder("WORKS_ON", "works on"),
    ),
    (
        re.compile(rf"(?:{_I_AM} using|\b[Ii] use) (?P<name>{_NAME})"),
        _make_relation_fact_builder("USES", "uses"),
    ),
    (
        re.compile(rf"\b(?P<owner>{_NAME}) uses (?:the )?(?P<name>{_NAME})"),
        _make_relation_fact_builder("USES", "uses"),
    ),
    (
        re.compile(rf"\b(?P<owner>{_NAME}) works (?:on|for|at) (?:the )?(?P<name>{_NAME})"),
        _make_relation_fact_builder("WORKS_ON", "works on"),
    ),
    (
        re.compile(rf"{_I_AM} struggling with (?P<name>{_NAME})"),
        _make_relation_fact_builder("STRUGGLES_WITH", "struggles with"),
    ),
    (
        re.compile(rf"{_I_AM} interested in (?P<name>{_NAME})"),
        _make_relation_fact_builder("EXPRESSED_INTEREST", "is interested in"),
    ),
)
_STATEMENT_WITH_FIGURE = re.compile(
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
