"""Decides whether a message continues a topic: by its words and time, by who said what before, and
by what came next.

The decision is a logistic score of 33 cues. Weights and bias are in weights.json. They were fitted
to conversations that people have marked, and rounded. `make bench NAME=fit-heuristic` fits them,
and also fits them to all conversations but one and tests them on that one; docs/chains.md has the
figures.
"""

import functools
import json
import math
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from strandline.llm.heuristic.words import (
    get_stem_frequency_band,
    is_english,
    is_ordinary,
    iter_stems,
    lowercase_without_genitive,
    lowercase_word,
    split_sentences,
    tokenize,
    word_list,
)
from strandline.llm.types import PromptEvent

_SHIFTS = re.compile(
    r"""\b(?:by\ the\ way | btw | next | unrelated | separately | also | anyway | another | now
    | (?:different|other|new|separate|second|third|last|final|one|quick|useful|next|two|few)
      \ (?:more\ )?(?:subjects? | topics? | questions? | matters? | things? | items? | jobs?
      | points? | notes? | tasks?)
    | (?:something|anything|one\ thing)\ (?:else|different|more) | one\ more | last\ one
    | (?:moving|move|switching|turning)\ (?:on|to) | on\ (?:another|a\ different)\ note
    | while\ (?:i|we|you)(?:'m|'re|\ have|\ are)? | before\ i\ forget | speaking\ of | talking\ of
    | as\ for | about\ (?:the|that|our|your) | regarding | change\ of | for\ the\ (?:record|minutes)
    | oh,?\ and | quick\ (?:one|q)|(?:any|good|bad|other|great|big)\ news | anything\ from
    | what\ (?:became|happened)|how\ (?:did|was|is|are)\ (?:the|your|our)|did\ (?:the|our|your)
    | guess\ what|heads\ up | fyi | meanwhile | update\ on | p\.?s\.?
    | remember\ (?:the|that|when|how)
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_CLEAR_SCORE = 2.0
"""Beyond this score, on either side, a language model is not asked; docs/chains.md says what that
costs and saves."""
_OPENING_WORDS = 6
"""A phrase that changes the topic must stand within so many words."""
_GREETING = re.compile(
    r"(?:hi|hey|hello|good (?:morning|afternoon|evening)|long time)\b", re.IGNORECASE
)
_NEWS = re.compile(
    r"""\b(?:rang|called|phoned|wrote|came|arrived|answered|replied|says?|said|complain\w*|wants?
    | asked|asks|offers?|offered|announced|sent|failed|broke\w*|won't|doesn't\ work
    | (?:has|have|'ve|'s)\ (?:\w+\ ){0,2}?\w+(?:ed|en|ne|wn|nt|ught|lt|ck|me|ot)
    | a\ (?:letter|mail|message|call|note|question|request|favour)
    | an\ (?:email|e-mail|offer|idea|invitation|alert|answer)
    | yesterday|this\ morning|last\ night|tonight|back\ from
    | (?:is|are)\ (?:here|back|up|in|out|due|ready|done|broken|dead|missing|on)
    | i\ (?:have\ to|need|want|must|met|had|got|bought|saw|found|heard|promised|forgot|was)
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Something happened, arrived, or is wanted."""
_NEWS_WORDS = 10
_COMPLETION = re.compile(
    r"\b(?:noted|recorded|understood|logged|set|booked|confirmed|entered|stored|kept|saved|done"
    r"|updated|marked|added|blocked|ordered|sent|on record|stays? (?:here|between)|reminder"
    r"|i['’]ll|i will|i['’]ve (?:put|added|set|marked|moved|blocked))\b",  # noqa: RUF001
    re.IGNORECASE,
)
"""How an agent concludes a matter: it is done, or will be."""
_RECENT_EVENTS = 4
"""Events whose words a message is compared with: a long run as a whole contains any word."""
_WORD = re.compile(r"[A-Za-z'’]+")  # noqa: RUF001
_JITTER_MINUTES = 0.2
"""Added to a pause before its logarithm is taken, because seconds mean nothing."""
_FIRST_WORDS = 5
_LATER_FIRST_WORDS = 12
_MATURE_EVENTS = 8
"""The number of events from which a topic's age makes no difference."""
_QUESTION_WORDS = frozenset({"what", "which", "who", "whose", "why", "where", "how", "when"})
_RARITY_BY_BAND = {10: 2.0, 20: 4.0, 35: 6.0, 40: 7.0, None: 8.5}
"""Information of a stem by its frequency band (`words.get_stem_frequency_band`): about the negative
logarithm of its share in English, less that of a word in every second sentence."""
_MIN_LATER_RARITY = 10.0
"""Least rarity by which shares of later events are divided: a short "ok" has no large share."""


class TopicBreakCues(NamedTuple):
    """Cues for and against a new topic. Cues of words are ln(1 + rarity of their stems)."""

    age: float
    """ln of the number of the topic's events so far, up to 8."""
    log_pause: float
    """ln of the minutes since the last event."""
    same_speaker: bool
    """The last speaker speaks again."""
    opener_speaks: bool
    """The speaker who opened the topic speaks."""
    answers_question: bool
    """Somebody else asked a question just before."""
    agent_settled: bool
    """An agent has just reported that something is done, or will be."""
    last_length: float
    """ln(1 + words of the last event)."""
    opens_as_reply: bool
    """Its first word is an answer: "yes", "then", "both"."""
    opens_with_shift: bool
    """It opens with a phrase such as "by the way"."""
    tells_news: bool
    """It begins with an event or a wish: somebody rang, a letter came."""
    has_new_name: bool
    """Its first three words contain a name: a word neither ordinary nor used recently."""
    points_back: bool
    """Its first words refer back: "it", "that", "those"."""
    leaning_words: int
    """Words that refer back, such as "him" and "I'll", among its first five."""
    leaning_words_later: int
    """The same among its first twelve."""
    turning_words: int
    """Words that raise something new, such as "has" and "how", among its first five."""
    says_thing: bool
    """"Thing" is one of them."""
    opens_with_thanks: bool
    """It opens with thanks or praise."""
    asks_question: bool
    """Any of its sentences is a question."""
    opens_with_question_word: bool
    """It begins with a question word."""
    new_rarity: float
    """Words that were not used recently."""
    shared_rarity: float
    """Words that were used in this topic."""
    later_events: int
    """Number of known events after it."""
    next_is_agent: bool
    """The next event is an agent's."""
    next_settles: bool
    """The next event reports that something is done, or will be."""
    next_same_speaker: bool
    """The next event is by the same speaker."""
    next_asks: bool
    """The next event asks a question."""
    next_log_pause: float
    """ln of the minutes until the next event."""
    next_length: float
    """ln(1 + words of the next event)."""
    later_recent_share: float
    """Share of the later words that were used just before the message."""
    later_topic_share: float
    """Share of the later words that were used in this topic, but not in the message."""
    next_user_replies: bool
    """The next message of a user opens with an answer."""
    next_user_shifts: bool
    """The next message of a user opens with a phrase such as "by the way"."""
    next_user_tells_news: bool
    """The next message of a user begins with news."""


class TopicBreakWeights(NamedTuple):
    """Weights and bias of the score."""

    of_cues: tuple[float, ...]
    """In the order of `TopicBreakCues`."""
    bias: float


@functools.cache
def load_weights() -> TopicBreakWeights:
    """Read weights.json, where each weight has the name of its cue."""
    document = json.loads((Path(__file__).parent / "weights.json").read_text(encoding="utf-8"))
    return TopicBreakWeights(
        tuple(document["weights"][name] for name in TopicBreakCues._fields), document["bias"]
    )


def continues_topic(
    before: Sequence[PromptEvent], message: PromptEvent, after: Sequence[PromptEvent]
) -> bool:
    """Whether `message` continues the topic of the events `before`, as the events `after` show."""
    return not before or _score_topic_break(before, message, after) < 0


def is_continuation_clear(
    before: Sequence[PromptEvent], message: PromptEvent, after: Sequence[PromptEvent]
) -> bool:
    """Whether the answer of `continues_topic` is so sure that asking a language model would hardly
    change it. Of a text that is not English it never is: the cues are English."""
    if not before:
        return True
    near = (*before[-_RECENT_EVENTS:], message, *after)
    return abs(_score_topic_break(before, message, after)) >= _CLEAR_SCORE and is_english(
        event.text for event in near
    )


def _score_topic_break(
    before: Sequence[PromptEvent], message: PromptEvent, after: Sequence[PromptEvent]
) -> float:
    """The log odds that the topic ends before `message`."""
    weights, bias = load_weights()
    return bias + math.sumprod(weights, compute_cues(before, message, after))


def compute_cues(
    before: Sequence[PromptEvent], message: PromptEvent, after: Sequence[PromptEvent]
) -> TopicBreakCues:
    """The cues of `continues_topic`; `before` has at least one event."""
    last, text = before[-1], message.text
    recent_stems = _stems_of_events(before[-_RECENT_EVENTS:])
    message_stems, later_stems = _stems_of_events([message]), _stems_of_events(after)
    topic_stems = _stems_of_events(before, message_stems | later_stems)
    later_rarity = _MIN_LATER_RARITY + _sum_rarity(later_stems)
    first_words = _first_words(text)
    answers_question = last.speaker != message.speaker and _ends_with_question(last.text)
    next_event = after[0] if after else None
    next_user_text = next((event.text for event in after if event.role == "user"), "")
    return TopicBreakCues(
        age=math.log(min(len(before), _MATURE_EVENTS)),
        log_pause=_compute_log_pause_minutes(last, message),
        same_speaker=last.speaker == message.speaker,
        opener_speaks=before[0].speaker == message.speaker,
        answers_question=answers_question,
        agent_settled=not answers_question and _agent_confirms(last),
        last_length=math.log1p(len(tokenize(last.text))),
        opens_as_reply=_opens_as_reply(text),
        opens_with_shift=_opens_with_topic_shift(text),
        tells_news=_tells_news(text),
        has_new_name=_opens_with_new_name(text, before[-_RECENT_EVENTS:]),
        points_back=not word_list("pointers").isdisjoint(first_words[:_OPENING_WORDS]),
        leaning_words=_count_words_in_list(first_words[:_FIRST_WORDS], "leaning"),
        leaning_words_later=_count_words_in_list(first_words, "leaning"),
        turning_words=_count_words_in_list(first_words[:_FIRST_WORDS], "turning"),
        says_thing="thing" in first_words[:_FIRST_WORDS],
        opens_with_thanks=not word_list("approving").isdisjoint(first_words[:1]),
        asks_question="?" in text,
        opens_with_question_word=not _QUESTION_WORDS.isdisjoint(first_words[:1]),
        new_rarity=math.log1p(_sum_rarity(message_stems - recent_stems)),
        shared_rarity=math.log1p(_sum_rarity(message_stems & topic_stems)),
        later_events=len(after),
        next_is_agent=next_event is not None and next_event.role != "user",
        next_settles=next_event is not None and _agent_confirms(next_event),
        next_same_speaker=next_event is not None and next_event.speaker == message.speaker,
        next_asks=next_event is not None and next_event.text.rstrip().endswith("?"),
        next_log_pause=_compute_log_pause_minutes(message, next_event) if next_event else 0.0,
        next_length=math.log1p(len(tokenize(next_event.text))) if next_event else 0.0,
        later_recent_share=_sum_rarity(later_stems & recent_stems) / later_rarity,
        later_topic_share=_sum_rarity((later_stems & topic_stems) - message_stems) / later_rarity,
        next_user_replies=_opens_as_reply(next_user_text),
        next_user_shifts=_opens_with_topic_shift(next_user_text),
        next_user_tells_news=_tells_news(next_user_text),
    )


def _stems_of_events(
    events: Sequence[PromptEvent], allowed: frozenset[str] | None = None
) -> frozenset[str]:
    """Stems of the events' texts; with `allowed`, only those: a long run has many others."""
    stem_sets = (_stem_text(item.text) for item in events)
    return frozenset[str]().union(
        *(stem_sets if allowed is None else (item & allowed for item in stem_sets))
    )


@functools.lru_cache(maxsize=512)
def _stem_text(text: str) -> frozenset[str]:
    """Cached for 500 texts, because each message is compared with its lane's open events."""
    return frozenset(iter_stems(text))


def _sum_rarity(stems_found: Iterable[str]) -> float:
    return sum(
        _RARITY_BY_BAND[get_stem_frequency_band(stem)] for stem in sorted(stems_found)
    )  # the order changes a sum of floats


def _agent_confirms(event: PromptEvent) -> bool:
    return event.role != "user" and bool(_COMPLETION.search(event.text))


def _count_words_in_list(words: Sequence[str], list_name: str) -> int:
    return sum(word in word_list(list_name) for word in words)


def _first_words(text: str) -> list[str]:
    return [lowercase_word(match[0]) for match in islice(_WORD.finditer(text), _LATER_FIRST_WORDS)]


def _opens_as_reply(text: str) -> bool:
    return not word_list("replies").isdisjoint(_first_words(text)[:1])


def _opens_with_topic_shift(text: str) -> bool:
    opening = " ".join(text.split()[:_OPENING_WORDS])
    return bool(_SHIFTS.search(opening) or _GREETING.match(text))


def _tells_news(text: str) -> bool:
    return bool(_NEWS.search(" ".join(text.split()[:_NEWS_WORDS])))


def _opens_with_new_name(text: str, recent: Sequence[PromptEvent]) -> bool:
    recent_text = " ".join(event.text for event in recent).lower()
    first_words = [word for match in islice(_WORD.finditer(text), 3) if len(word := match[0]) > 2]
    return any(
        not is_ordinary(word) and lowercase_without_genitive(word) not in recent_text
        for word in first_words
    )


def _compute_log_pause_minutes(earlier: PromptEvent, later: PromptEvent) -> float:
    """ln of the minutes between two events; a clock that goes back counts as no time."""
    return math.log(
        _JITTER_MINUTES + max(0.0, (later.said_at - earlier.said_at).total_seconds() / 60)
    )


def _ends_with_question(text: str) -> bool:
    """Whether the last sentence is a question."""
    parts = split_sentences(text)
    return bool(parts) and parts[-1].rstrip("\"'”’)").endswith(("?", "？", "؟"))  # noqa: RUF001
