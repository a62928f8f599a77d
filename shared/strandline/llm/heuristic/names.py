"""Finds the entities of a run by how names are written: capitals, codes, paths, lists.

A capital inside a sentence marks a name. A capital at the beginning of a sentence marks a name only
with further evidence: the same word with a capital elsewhere, a list of capitals, a genitive, an
address, a verb of people's actions. If every noun has a capital, as in German, only names of
several words count.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from strandline.llm.heuristic.aliases import find_aliases
from strandline.llm.heuristic.codes import find_codes, is_acronym
from strandline.llm.heuristic.lowercase_names import find_lower_case_names
from strandline.llm.heuristic.name_spans import find_capitalized_runs, is_name_like
from strandline.llm.heuristic.sentences import (
    TokenizedSentence,
    find_titles_and_file_numbers,
    tokenize_sentences,
)
from strandline.llm.heuristic.unlisted_words import is_derived_from_listed_word
from strandline.llm.heuristic.words import is_ordinary, word_list
from strandline.llm.types import Entity, EntityKind, PromptEvent

_MAX_ENTITIES = 40
"""Most entities of a run."""
_MAX_CAPITAL_SHARE = 0.3
"""From this share of words with a capital inside sentences, capitals mean nothing."""
_MIN_CAPITALS = 8
"""So few capitals allow no conclusion."""


def extract_entities(events: Sequence[PromptEvent]) -> list[Entity]:
    """Entities of a run, most mentioned first, each once under its longest name."""
    sentence_lines = tokenize_sentences(events)
    speakers = {event.speaker.split(":", 1)[-1].lower() for event in events if event.speaker}
    counts: Counter[str] = Counter()
    kinds: dict[str, EntityKind] = {}
    for name, kind in _find_entity_mentions(events, sentence_lines, speakers):
        counts[name] += 1
        if kinds.get(name, "other") == "other":
            kinds[name] = kind
    for name_part, whole_name in find_aliases(kinds).items():
        count, kind = counts.pop(name_part), kinds[name_part]
        if (
            whole_name is not None
        ):  # None: it stands for one of several, and is no entity of its own
            counts[whole_name] += count
            kinds[whole_name] = kind if kinds[whole_name] == "other" else kinds[whole_name]
    return [
        Entity(name=name[:200], kind=kinds[name]) for name, _ in counts.most_common(_MAX_ENTITIES)
    ]


def _find_entity_mentions(
    events: Sequence[PromptEvent], sentence_lines: Sequence[TokenizedSentence], speakers: set[str]
) -> Iterator[tuple[str, EntityKind]]:
    for name in find_titles_and_file_numbers(events):
        yield name, "other"
    yield from find_codes([line.words for line in sentence_lines])
    capital_names = list(_find_capital_names(sentence_lines, speakers))
    yield from capital_names
    name_words = {word.lower() for name, _ in capital_names for word in name.split()}
    for name in find_lower_case_names(sentence_lines, speakers, name_words):
        yield name, "other"


def _find_capital_names(
    sentence_lines: Sequence[TokenizedSentence], speakers: set[str]
) -> Iterator[tuple[str, EntityKind]]:
    spans_and_lines = [
        (span, line) for line in sentence_lines for span in find_capitalized_runs(line.words)
    ]
    lower_words = {
        word
        for line in sentence_lines
        for word in line.words
        if word.islower() and (not line.is_lower_case or is_ordinary(word))
    }
    known_words = {
        word.lower()
        for span, _ in spans_and_lines
        if not span.opens_sentence
        for word in span.words
    }
    known_words |= speakers
    says_nothing = _capitals_say_nothing(sentence_lines)
    for span, line in spans_and_lines:
        words = span.words
        first = words[0].lower()
        if (
            span.opens_sentence
            and len(words) > 1
            and _first_capital_is_of_sentence(words, lower_words, known_words)
        ):
            words = words[2:] if words[1] in word_list("links") else words[1:]
            first = ""
        name = re.sub(r" (?=['’] )", "", " ".join(words))  # noqa: RUF001
        is_name = not first or first in known_words or _is_no_ordinary_word(name, lower_words)
        is_name = is_name or (
            span.is_marked and first not in lower_words and not _is_ordinary_plural(first)
        )
        if _is_ordinary_word_in_capitals(name, lower_words, line) or name.lower() in word_list(
            "peoples"
        ):
            continue
        if name.lower() in speakers:
            yield name, "person"
        elif len(words) > 1 or (is_name and not says_nothing):
            yield name, "technology" if is_acronym(name) else span.kind


def _is_ordinary_word_in_capitals(
    name: str, lower_words: set[str], line: TokenizedSentence
) -> bool:
    """Whether it is an ordinary word in capitals. A short one may be an abbreviation, unless its
    writer uses no capitals otherwise."""
    word = name.lower()
    is_long = len(name) > 3 or line.is_lower_case
    return name.isupper() and (word in lower_words or (is_long and is_ordinary(name)))


def _is_ordinary_plural(word: str) -> bool:
    """Whether it is an ordinary plural: Reminders went out; Sixty-six came."""
    return (word.endswith("s") or "-" in word) and is_ordinary(word)


def _is_no_ordinary_word(name: str, lower_words: set[str]) -> bool:
    """Whether it is neither an ordinary word nor derived from one: the capital marks a name."""
    word = name.lower()
    return not (word in lower_words or is_ordinary(word) or is_derived_from_listed_word(word))


def _first_capital_is_of_sentence(
    words: Sequence[str], lower_words: set[str], known_words: set[str]
) -> bool:
    """Whether the first capital belongs to the sentence, not to the name: Invoice Halberg."""
    first, second = words[0].lower(), words[1].lower()
    if first in known_words or any(
        first in word_list(heads) for heads in ("titles", "places", "companies", "ventures")
    ):
        return False
    if second == "&" or second in word_list("stop"):
        return False
    if first in lower_words or first in word_list("does") or first in word_list("fond"):
        return True
    return is_ordinary(first) and (second in word_list("links") or not is_ordinary(second))


def _capitals_say_nothing(sentence_lines: Sequence[TokenizedSentence]) -> bool:
    inner_words = [word for line in sentence_lines for word in line.words[1:] if word[0].isalpha()]
    return sum(is_name_like(word) for word in inner_words) > max(
        _MIN_CAPITALS, _MAX_CAPITAL_SHARE * len(inner_words)
    )
