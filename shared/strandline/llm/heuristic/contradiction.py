"""Whether two statements contradict each other: a test by rules, deterministic and offline.

It sees three things: one denies what the other says, both give another number or time at the same
place, or both give another value to what has one value at a time. It knows English. It reports
nothing that these rules do not find: precision comes before recall.
"""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from strandline.llm.heuristic.words import WORD, lowercase_without_genitive, lowercase_word

_NEGATIONS = frozenset({"not", "never", "no", "longer", "anymore"})
_FILLERS = frozenset(
    {"a", "an", "the", "now", "currently", "still", "already", "also", "any", "do", "does", "did"}
)
_SAME_WORDS = {"has": "have", "had": "have", "cannot": "can", "ca": "can", "wo": "will"}
_CONTRACTION = re.compile(r"(\w+?)n't$")
_NUMBER = re.compile(
    r"[#]?\d[\d.,:/-]*(?:st|nd|rd|th|am|pm|%|k|m|h)?|one|two|three|four|five|six|seven|eight|nine"
    r"|ten|eleven|twelve|monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february"
    r"|march|april|may|june|july|august|september|october|november|december|half|quarter|past"
)
_SINGLE_VALUED = re.compile(
    r"(?:^|\s)(?:"
    r"(?:lives?|lived|living|resides?|based|located|stays?|born|works?|working|employed) "
    r"(?:in|at|for|on|near)"
    r"|(?:is|are|was|gets?) (?:called|named|married to|engaged to|owned by|led by|run by"
    r"|managed by)"
    r"|moved (?:to|into)|reports? to|belongs? to|costs?|weighs?|starts? (?:at|on)|ends? (?:at|on)"
    r"|prefers?|favou?rite [\w ]{1,40} (?:is|are|was)|default [\w ]{1,40} is|name is"
    r"|main [\w ]{1,40} is|[\w ]{1,40} (?:owner|captain|boss|manager|lead|leader|ceo|director|wife"
    r"|husband|spouse|birthday|address|capital|deadline|password|version|colou?r|size|age|status)"
    r"(?: of [\w ]{1,40})? (?:is|was)"
    r")$"
)
"""The end of what comes before a value, where there is one value at a time."""
_MAX_TOKENS = 60


def explain_contradiction(first: str, second: str) -> str | None:
    """Why two statements cannot both hold, in a few words; None where no rule says so."""
    tokens = _tokenize(first), _tokenize(second)
    if not all(tokens) or max(map(len, tokens)) > _MAX_TOKENS:
        return None
    (words, is_denied), (other_words, is_other_denied) = map(_remove_negations, tokens)
    if is_denied != is_other_denied:
        return (
            "one denies what the other says"
            if _are_same_but_for_verb_forms(words, other_words)
            else None
        )
    if is_denied:
        return None
    return _explain_different_values(words, other_words)


def _tokenize(text: str) -> list[str]:
    return [lowercase_without_genitive(word) for word in WORD.findall(text)]


def _remove_negations(tokens: Sequence[str]) -> tuple[list[str], bool]:
    """The words without negations, articles and forms of `do`; and whether there is an odd number
    of negations. `no longer` and `not anymore` are one."""
    words: list[str] = []
    count = 0
    for word in map(lowercase_word, tokens):
        contraction = _CONTRACTION.match(word)
        is_second = word in ("longer", "anymore") and count > 0
        if contraction or word == "cannot" or (word in _NEGATIONS and not is_second):
            count += 1
        stem = contraction[1] if contraction else word
        if stem not in _FILLERS and stem not in _NEGATIONS:
            words.append(_SAME_WORDS.get(stem, stem))
    return words, count % 2 == 1


def _are_same_but_for_verb_forms(words: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two texts are the same but for the forms of their verbs."""
    return [_strip_verb_ending(word) for word in words] == [
        _strip_verb_ending(word) for word in others
    ]


def _strip_verb_ending(word: str) -> str:
    for ending in ("ies", "es", "s", "ed", "ing"):
        if word.endswith(ending) and len(word) - len(ending) > 2:
            return word[: -len(ending)].rstrip("ei")
    return word.rstrip("e")


def _explain_different_values(words: Sequence[str], others: Sequence[str]) -> str | None:
    changes = [
        change
        for change in SequenceMatcher(None, words, others, autojunk=False).get_opcodes()
        if change[0] != "equal"
    ]
    if len(changes) != 1 or changes[0][0] != "replace":
        return None
    _, start, end, other_start, other_end = changes[0]
    value, other_value = words[start:end], others[other_start:other_end]
    if max(len(value), len(other_value)) > 5 or start == 0:
        return None
    if all(_NUMBER.fullmatch(word) for word in (*value, *other_value)):
        return "they give different numbers or times"
    if _SINGLE_VALUED.search(" ".join(words[:start])):
        return "they give different values to what has one at a time"
    return None
