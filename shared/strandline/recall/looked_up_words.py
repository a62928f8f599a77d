"""Questions that look up a word instead of asking something.

`known` estimates whether a question has an answer. Somebody who types a word looks for what
contains it, so there is nothing to refuse.
"""

import re
from collections.abc import Sequence

from strandline.languages import STOP_WORDS, detect_language
from strandline.recall.features import QuestionWord

_MAX_BARE_WORDS = 3
_MAX_UNSPACED_LETTERS = 8
"""A longer run in a script without spaces is a sentence."""
_EDGES = ".,;:!()[]{}<>\"'`*\u201c\u201d\u00ab\u00bb"
_ASKS = re.compile(r"[?\u00bf\uff1f\u061f\u3002]")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


def find_looked_up_word_bits(question: str, words: Sequence[QuestionWord]) -> int:
    """The rarest of the question's words in view, as in `CandidateEvent.word_bits`, if the question
    looks up a word: if it has one word that tells anything ("Where is Mongolia?"), or is nothing
    but up to three such words ("red buoy"). Else 0, also if none of them is in view."""
    own_count = sum(word.stands_for is None for word in words)
    if own_count != 1 and not is_bare_words(question):
        return 0
    counts = [word.events for word in words if word.events]
    rarest = min(counts, default=0)
    return sum(1 << n for n, word in enumerate(words) if word.events and word.events == rarest)


def is_bare_words(question: str) -> bool:
    """Whether a question is nothing but a few words that each tell something: it has no frequent
    words, and does not ask. One word alone may have a question mark."""
    chunks = [chunk.strip(_EDGES) for chunk in question.split()]
    chunks = [chunk for chunk in chunks if chunk]
    if not 1 <= len(chunks) <= _MAX_BARE_WORDS or (len(chunks) > 1 and _ASKS.search(question)):
        return False
    if any(_UNSPACED.search(chunk) and len(chunk) > _MAX_UNSPACED_LETTERS for chunk in chunks):
        return False
    frequent = STOP_WORDS["en"] | STOP_WORDS.get(detect_language(question), frozenset())
    return not any(chunk.lower() in frequent for chunk in chunks)
