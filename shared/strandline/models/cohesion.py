"""Whether a message goes on with a topic, told from its words and time, from who said what before,
and from what came next.

A logistic score of 33 cues. Weights and bias are in weights.json. They were fitted to conversations
that people have marked (`make twin` fits them anew, and tries those of all but one on that one;
docs/chains.md has the figures), and rounded.
"""

import functools
import json
import math
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from strandline.models.language import Said
from strandline.models.words import (
    band,
    bare,
    listed,
    ordinary,
    plain,
    sentences,
    stems,
    tokens,
)

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
_OPENING_WORDS = 6
"""Where a phrase that turns to something else has to stand."""
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
"""What happened, came, or is wanted."""
_NEWS_WORDS = 10
_SETTLED = re.compile(
    r"\b(?:noted|recorded|understood|logged|set|booked|confirmed|entered|stored|kept|saved|done"
    r"|updated|marked|added|blocked|ordered|sent|on record|stays? (?:here|between)|reminder"
    r"|i['’]ll|i will|i['’]ve (?:put|added|set|marked|moved|blocked))\b",  # noqa: RUF001
    re.IGNORECASE,
)
"""How an agent ends a matter: it is done, or it will be."""
_RECENT = 4
"""Events whose words a message is compared with: in all of a long run it would find any word."""
_WORD = re.compile(r"[A-Za-z'’]+")  # noqa: RUF001
_JITTER_MINUTES = 0.2
"""Added to a pause before its logarithm is taken: seconds say nothing."""
_FIRST_WORDS = 5
_LEANING_WORDS = 12
_GROWN = 8
"""Events from which a topic is no younger than any other."""
_ASKING = frozenset({"what", "which", "who", "whose", "why", "where", "how", "when"})
_RARITY = {10: 2.0, 20: 4.0, 35: 6.0, 40: 7.0, None: 8.5}
"""What a stem tells by itself, by how common it is (`words.band`): about the negative logarithm of
its share in English, less that of a word in every second sentence."""
_LITTLE = 10.0
"""Rarity beside which shares of what came after are taken: of a short "ok" none is large."""


class Cues(NamedTuple):
    """What speaks for a new topic, and against it. Told of words: ln(1 + rarity of their stems)."""

    age: float
    """ln of the topic's events so far, up to 8."""
    pause: float
    """ln of the minutes since the last of them."""
    again: bool
    """Who spoke last speaks again."""
    opened: bool
    """Who opened the topic speaks."""
    answers: bool
    """Somebody else had asked."""
    settled: bool
    """An agent has just told that something is done, or will be."""
    replied: float
    """ln(1 + words of what was said last)."""
    replies: bool
    """Its first word answers: "yes", "then", "both"."""
    shifts: bool
    """It opens with a phrase such as "by the way"."""
    news: bool
    """It begins with what happened or is wanted: somebody rang, a letter came."""
    stranger: bool
    """Among its first three words is one that is neither of every day nor said before: a name."""
    points_back: bool
    """Its first words lean on something said: "it", "that", "those"."""
    leans: int
    """Words that lean on what was said, such as "him" and "I'll", among its first five"""
    leans_later: int
    """and among its first twelve."""
    turns: int
    """Words that bring something up, such as "has" and "how", among its first five."""
    thing: bool
    """"Thing" is one of them."""
    approves: bool
    """It opens with thanks or praise."""
    asks: bool
    """It asks, in any of its sentences."""
    asks_what: bool
    """It begins with a question word."""
    new: float
    """What it says that was not said lately."""
    shared: float
    """What it says that was said in this topic."""
    after: int
    """How many events after it are known."""
    after_agent: bool
    """An agent speaks next."""
    after_settled: bool
    """and tells that something is done, or will be."""
    after_same: bool
    """Whoever says it speaks next too."""
    after_asks: bool
    """What is said next asks."""
    after_pause: float
    """ln of the minutes until then."""
    after_length: float
    """ln(1 + words of it)."""
    after_recent: float
    """Share of what comes after that was said just before the message."""
    after_back: float
    """Share of it that was said in this topic, and not in the message."""
    next_replies: bool
    """The next user's message opens with an answer,"""
    next_shifts: bool
    """turns to something else,"""
    next_news: bool
    """or tells news."""


class Weights(NamedTuple):
    """What the score is made of."""

    of_cues: tuple[float, ...]
    """In the order of `Cues`."""
    bias: float


@functools.cache
def load_weights() -> Weights:
    """From weights.json, where each has its cue's name."""
    found = json.loads((Path(__file__).parent / "weights.json").read_text(encoding="utf-8"))
    return Weights(tuple(found["weights"][name] for name in Cues._fields), found["bias"])


def goes_on(before: Sequence[Said], message: Said, after: Sequence[Said]) -> bool:
    """Whether `message` goes on with the topic of the events `before` it, as those `after` show."""
    if not before:
        return True
    weights, bias = load_weights()
    return bias + math.sumprod(weights, cues(before, message, after)) < 0


def cues(before: Sequence[Said], message: Said, after: Sequence[Said]) -> Cues:
    """What `goes_on` weighs; `before` holds an event at least."""
    last, text = before[-1], message.text
    recent, here, later = _stems(before[-_RECENT:]), _stems([message]), _stems(after)
    said = _stems(before, here | later)
    told = _LITTLE + _rarity(later)
    words = _first_words(text)
    answers = last.speaker != message.speaker and _asks(last.text)
    following = after[0] if after else None
    user = next((one.text for one in after if one.role == "user"), "")
    return Cues(
        age=math.log(min(len(before), _GROWN)),
        pause=_pause(last, message),
        again=last.speaker == message.speaker,
        opened=before[0].speaker == message.speaker,
        answers=answers,
        settled=not answers and _settles(last),
        replied=math.log1p(len(tokens(last.text))),
        replies=_replies(text),
        shifts=_shifts(text),
        news=_tells_news(text),
        stranger=_names_somebody(text, before[-_RECENT:]),
        points_back=not listed("pointers").isdisjoint(words[:_OPENING_WORDS]),
        leans=_of(words[:_FIRST_WORDS], "leaning"),
        leans_later=_of(words, "leaning"),
        turns=_of(words[:_FIRST_WORDS], "turning"),
        thing="thing" in words[:_FIRST_WORDS],
        approves=not listed("approving").isdisjoint(words[:1]),
        asks="?" in text,
        asks_what=not _ASKING.isdisjoint(words[:1]),
        new=math.log1p(_rarity(here - recent)),
        shared=math.log1p(_rarity(here & said)),
        after=len(after),
        after_agent=following is not None and following.role != "user",
        after_settled=following is not None and _settles(following),
        after_same=following is not None and following.speaker == message.speaker,
        after_asks=following is not None and following.text.rstrip().endswith("?"),
        after_pause=_pause(message, following) if following else 0.0,
        after_length=math.log1p(len(tokens(following.text))) if following else 0.0,
        after_recent=_rarity(later & recent) / told,
        after_back=_rarity((later & said) - here) / told,
        next_replies=_replies(user),
        next_shifts=_shifts(user),
        next_news=_tells_news(user),
    )


def _stems(said: Sequence[Said], among: frozenset[str] | None = None) -> frozenset[str]:
    """Stems of what was said; `among`: of these alone, which a long run has many others than."""
    each = (_stems_of(one.text) for one in said)
    return frozenset[str]().union(*(each if among is None else (one & among for one in each)))


@functools.lru_cache(maxsize=512)
def _stems_of(text: str) -> frozenset[str]:
    """What is open in a lane is looked at again for each message: 500 texts at most."""
    return frozenset(stems(text))


def _rarity(found: Iterable[str]) -> float:
    return sum(_RARITY[band(stem)] for stem in sorted(found))  # sums of floats are told by order


def _settles(said: Said) -> bool:
    return said.role != "user" and bool(_SETTLED.search(said.text))


def _of(words: Sequence[str], name: str) -> int:
    return sum(word in listed(name) for word in words)


def _first_words(text: str) -> list[str]:
    return [plain(found[0]) for found in islice(_WORD.finditer(text), _LEANING_WORDS)]


def _replies(text: str) -> bool:
    return not listed("replies").isdisjoint(_first_words(text)[:1])


def _shifts(text: str) -> bool:
    opening = " ".join(text.split()[:_OPENING_WORDS])
    return bool(_SHIFTS.search(opening) or _GREETING.match(text))


def _tells_news(text: str) -> bool:
    return bool(_NEWS.search(" ".join(text.split()[:_NEWS_WORDS])))


def _names_somebody(text: str, recent: Sequence[Said]) -> bool:
    said = " ".join(one.text for one in recent).lower()
    first = [word for found in islice(_WORD.finditer(text), 3) if len(word := found[0]) > 2]
    return any(not ordinary(word) and bare(word) not in said for word in first)


def _pause(one: Said, other: Said) -> float:
    """Between two events; clocks that go back show no time."""
    return math.log(_JITTER_MINUTES + max(0.0, (other.at - one.at).total_seconds() / 60))


def _asks(text: str) -> bool:
    """Whether the last sentence is a question."""
    found = sentences(text)
    return bool(found) and found[-1].rstrip("\"'”’)").endswith(("?", "？", "؟"))  # noqa: RUF001
