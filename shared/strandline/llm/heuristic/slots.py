"""What people say of themselves that takes the place of what they said before: where they live and
work, what they use, plan and prefer.

Precision comes before recall: where it cannot be told that two statements fill the same slot, they
have nothing to do with each other.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from strandline.llm.heuristic.fact_forms import DOUBTS, MAX_CONTENT, StatedFact
from strandline.llm.heuristic.slot_forms import (
    ADJECTIVES,
    FACTS,
    SPOKEN,
    Required,
    Slot,
    SlotClauseForm,
    find_form,
    find_required,
    may_match_any,
)
from strandline.llm.heuristic.words import is_ordinary, iter_stems, split_sentences, word_list

MAX_CHARACTERS = 4000
"""Characters of a text that are read."""
_MAX_SENTENCES = 60
_MAX_VALUE = 120
_ENTRY = re.compile(
    r"\b(?:now|these days|nowadays|from now on|instead|as of|any ?more|better)\b", re.I
)
"""Words by which a statement says that it was otherwise before."""
_CHANGED_MIND = re.compile(r"\bchanged? (?:my|our) minds?\b", re.I)
_ELSEWHERE = re.compile(
    r"\b(?:used to|when (?:i|we) (?:was|were)|as a (?:child|kid|student|teenager)|years? ago|"
    r"back (?:then|when|in)|at that time|before (?:i|we)|had (?:just |already )?(?:moved|switched)|"
    r"(?:in|since|until|till) (?:19|20)\d\d|"
    r"said|says|saying|told|tells|asked|heard|dreamt|dreamed|claims?|once|"
    r"until|till|temporar\w+|visiting|for (?:the|a|two|three|four|a few) (?:\w+ )?"
    r"(?:days?|weeks?|weekend|nights?|months?|summer|winter|season)|"
    r"this (?:week|weekend|month|summer)|on (?:holiday|vacation))\b",
    re.I,
)
"""Another time, another speaker, or only for a while."""
_REQUEST = re.compile(
    r"(?:please )?(?:translate|write|rewrite|proofread|correct|say|repeat)\b", re.I
)
_QUOTATION = re.compile(
    r"\"[^\"]{0,600}\"|“[^”]{0,600}”|«[^»]{0,600}»|^\s*>.*$|```.*?(?:```|\Z)", re.M | re.S
)
_FOR_NOW = re.compile(
    r"\bfor (?:a|two|three|some) (?:weeks?|months?|years?)(?: or so)? now\b", re.I
)
_SHAPE_OF_A_TOOL = re.compile(r"\d|[a-z][A-Z]|^[A-Z]{2,}$|[.+#_/]")
_TECHNICAL = ("labelled", "standards")
"""Lists of words of software: among them "moved to" speaks of no home."""


class SlotStatement(NamedTuple):
    """What fills a slot of somebody, or no longer does."""

    slot: Slot
    subject: str
    """The compared form of the name of whom it is about."""
    aspect: str
    value: str
    """What fills the slot; "" if the statement only says that `old` no longer does."""
    old: str
    """What no longer fills it; "" if it does not say."""
    topic: str
    """What the value is for, such as "CI" or "wedding"; "" if it does not say."""
    is_change: bool
    """Whether it says that it was otherwise before."""
    is_explicit: bool
    """Whether it names the change: moved to, no longer; "I live in Lisbon now" may be the first
    that is heard of it."""
    is_sure: bool
    """Whether the slot is beyond doubt: "moved to Dresden" is, "moved to Postgres" is not."""
    sentence: str


type Verdict = Literal["restates", "ends", "doubts"]


def read_slot_statements(text: str, speaker: str) -> list[SlotStatement]:
    """What a message states of its speaker, whose name is given, by slot."""
    clean = _QUOTATION.sub(" … ", text[:MAX_CHARACTERS]).replace("’", "'")  # noqa: RUF001
    if not may_match_any(clean):  # so most texts are told from those that state something
        return []
    slot_statements: list[SlotStatement] = []
    sentences = split_sentences(clean)[:_MAX_SENTENCES]
    for sentence in sentences:
        if len(sentence) <= 400:
            slot_statements += _read_statements_of_sentence(sentence, speaker)
    if not slot_statements:
        return []
    has_end = {one.slot for one in slot_statements if one.old}
    has_turn = any(_CHANGED_MIND.search(sentence) for sentence in sentences)
    is_technical = _mentions_software(clean)
    statements = [
        one._replace(
            is_change=one.is_change or has_turn or one.slot in has_end,
            is_sure=one.is_sure and not (_may_be_tool(one) and is_technical),
        )
        for one in slot_statements
        if one.aspect not in ("place", "bare role") or one.slot in has_end
    ]
    tools = [
        one._replace(slot="tool") for one in statements if _may_be_tool(one) and not one.is_sure
    ]
    return [*statements, *tools]


def to_stated_fact(statement: SlotStatement, speaker: str) -> StatedFact | None:
    """A statement as a fact about its speaker, if it surely fills a slot."""
    value, topic = statement.value, statement.topic
    if not value or not statement.is_sure:
        return None
    match statement.slot, statement.aspect:
        case "home", _:
            return StatedFact(f"{speaker} lives in {value}.", "personal", 0.9)
        case "job", "employer":
            return StatedFact(f"{speaker} works at {value}.", "professional", 0.9)
        case "job", _:
            article = "an" if value[0] in "aeiou" else "a"
            return StatedFact(f"{speaker} works as {article} {value}.", "professional", 0.8)
        case "tool", _:
            use = f" for {topic}" if topic else ""
            return StatedFact(f"{speaker} uses {value}{use}.", "professional", 0.8)
        case "plan", _ if topic or statement.aspect == "intends":
            plan = f"'s {topic} is planned for {value}" if topic else f" plans to {value}"
            return StatedFact(f"{speaker}{plan}.", "personal", 0.8)
        case "preference", "prefer":
            return StatedFact(f"{speaker} prefers {value}.", "preference", 0.8)
        case _:
            return None


def read_slot_of_fact(content: str) -> SlotStatement | None:
    """Which slot of whom a fact fills, if any."""
    text = content.replace("’", "'").strip()  # noqa: RUF001
    return next(_find_statements_by_forms(FACTS, text.rstrip("."), None, {}), None)


def compare_slot_statements(earlier: SlotStatement, later: SlotStatement) -> Verdict | None:
    """What a later statement does to an earlier one; None if they have nothing to do with each
    other."""
    if (earlier.slot, earlier.subject) != (later.slot, later.subject) or not earlier.value:
        return None
    if later.old and _contains_all_words(earlier.value, later.old):
        is_same_kind = later.aspect != "use"
        return "ends" if later.is_sure and is_same_kind else "doubts"
    if not later.value:
        return None
    if _is_same_value(earlier.value, later.value):
        return "restates" if earlier.aspect == later.aspect or earlier.slot != "job" else None
    match earlier.slot:
        case "home":
            return _choose_ends_or_doubts(later, is_same_slot=later.aspect != "place")
        case "job":
            is_same = _get_job_aspect(earlier) == _get_job_aspect(later)
            return (
                _choose_ends_or_doubts(later, is_same_slot=True)
                if is_same
                else _doubt_if_change(later)
            )
        case "preference":
            return _compare_preferences(earlier, later)
        case _:
            return _compare_by_topic(earlier, later)


def judge_by_later_statements(
    earlier: SlotStatement, later: Sequence[SlotStatement]
) -> tuple[Verdict, int] | None:
    """What later statements, newest first, do to an earlier one, and the place of the one that
    decides. "Moved to" is no sure sign of a new home from somebody who speaks of tools."""
    has_tools = any(one.slot == "tool" and one.subject == earlier.subject for one in later)
    for place, statement in enumerate(later):
        if has_tools and _may_be_tool(statement):
            statement = statement._replace(is_sure=False)
        verdict = compare_slot_statements(earlier, statement)
        if verdict is not None:
            return verdict, place
    return None


def _read_statements_of_sentence(sentence: str, speaker: str) -> Iterator[SlotStatement]:
    places = find_required(sentence)
    # What a form requires is quicker to look for than words that speak of another time.
    if not any(places.values()) or not _states_what_holds_now(sentence):
        return
    for one in _find_statements_by_forms(SPOKEN, sentence, speaker, places):
        says_now = bool(_ENTRY.search(sentence))
        yield one._replace(is_change=one.is_change or says_now)


def _find_statements_by_forms(
    forms: Sequence[SlotClauseForm],
    text: str,
    speaker: str | None,
    places: Mapping[Required, Sequence[int]],
) -> Iterator[SlotStatement]:
    for form in forms:
        for match in find_form(form, text, places):
            groups = {
                name: _trim_punctuation(part) for name, part in match.groupdict().items() if part
            }
            subject = speaker if speaker is not None else groups.get("subject", "")
            value, old = groups.get("value", ""), groups.get("old", "")
            if not _may_fill_slot(form, value, old):
                continue
            yield SlotStatement(
                slot=form.slot,
                subject=subject.casefold(),
                aspect=form.aspect,
                value=value,
                old=old,
                topic=groups.get("topic") or groups.get("use", ""),
                is_change=form.is_change or bool(old),
                is_explicit=form.is_change or bool(old),
                is_sure=form.aspect not in ("place", "moved") or not _SHAPE_OF_A_TOOL.search(value),
                sentence=text[:MAX_CONTENT],
            )


def _may_fill_slot(form: SlotClauseForm, value: str, old: str) -> bool:
    """Whether it can fill the slot: no day or month, no pronoun, no everyday word for a name."""
    if len(value) > _MAX_VALUE or len(old) > _MAX_VALUE:
        return False
    first = next(iter((value or old).removeprefix("the ").lower().split()), "")
    if form.slot == "home":
        is_usual_word = form.aspect == "moved" and is_ordinary(first)
        return bool(first) and first not in word_list("calendar") and not is_usual_word
    if form.slot == "preference":
        # A quotation in its place leaves nothing.
        return bool(first) and (value or old).split()[0].lower() not in word_list("pointers")
    return not (form.slot == "tool" and value.lower() in word_list("calendar"))


def _states_what_holds_now(sentence: str) -> bool:
    """Whether it states something, of the speaker and of now."""
    if DOUBTS.search(sentence) or _REQUEST.match(sentence):
        return False
    return not _ELSEWHERE.search(_FOR_NOW.sub(" now ", sentence))


def _mentions_software(text: str) -> bool:
    words = re.findall(r"[\w.+#/-]+", text)
    lists = [word_list(name) for name in _TECHNICAL]
    return any(
        word.lower() in split_into_lowercase_words
        for word in words
        for split_into_lowercase_words in lists
    )


def _may_be_tool(statement: SlotStatement) -> bool:
    """Whether it may speak of a tool as well: moved to Dresden, moved to Kubernetes."""
    return statement.aspect == "moved" and not statement.old


def _choose_ends_or_doubts(later: SlotStatement, *, is_same_slot: bool) -> Verdict:
    return "ends" if is_same_slot and later.is_change and later.is_sure else "doubts"


def _doubt_if_change(later: SlotStatement) -> Verdict | None:
    return "doubts" if later.is_change else None


def _get_job_aspect(statement: SlotStatement) -> str:
    return "role" if statement.aspect == "bare role" else statement.aspect


def _compare_preferences(earlier: SlotStatement, later: SlotStatement) -> Verdict | None:
    """Two preferences are about the same if both are for one kind of thing: window seats, aisle
    seats. Without a kind, only what is preferred can be put in doubt."""
    both_prefer = earlier.aspect == later.aspect == "prefer"
    if _stem_last_word_of_phrase(earlier.value) == _stem_last_word_of_phrase(later.value):
        return (
            _choose_ends_or_doubts(later, is_same_slot=True)
            if both_prefer
            else _doubt_if_change(later)
        )
    return _doubt_if_change(later) if both_prefer else None


def _compare_by_topic(earlier: SlotStatement, later: SlotStatement) -> Verdict | None:
    topics = [_find_stems_and_numbers(one.topic) for one in (earlier, later)]
    if all(topics):
        return _choose_ends_or_doubts(later, is_same_slot=True) if topics[0] & topics[1] else None
    if topics[1] and earlier.slot == "plan":
        is_about = topics[1] <= _find_stems_and_numbers(earlier.value)
        return _choose_ends_or_doubts(later, is_same_slot=True) if is_about else None
    if earlier.slot == "plan":
        return None
    return _doubt_if_change(later)  # which tool it replaces cannot be told


def _contains_all_words(value: str, part: str) -> bool:
    """Whether a value holds all words of a part."""
    words = _find_stems_and_numbers(part)
    return bool(words) and words <= _find_stems_and_numbers(value)


def _is_same_value(value: str, other: str) -> bool:
    words, others = _find_stems_and_numbers(value), _find_stems_and_numbers(other)
    return words <= others or others <= words if words and others else value == other


def _find_stems_and_numbers(text: str) -> set[str]:
    """The stems and the numbers of a text."""
    return {*iter_stems(text), *re.findall(r"\d+", text)}


def _stem_last_word_of_phrase(value: str) -> str:
    """The stem of the last word of a noun phrase."""
    value = re.sub(rf"^{ADJECTIVES}", "", value)
    phrase = re.split(r"\b(?:in|on|for|when|with|of|to|over|at|than|and|if)\b|,", value)[0]
    return ([*iter_stems(phrase)] or [""])[-1]


def _trim_punctuation(text: str) -> str:
    return text.strip(" ,;:.!…-'")
