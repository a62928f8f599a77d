"""Whether a message goes on with a topic, told from its words, its time and who said what before.

A logistic score of 23 cues. Weights and bias were fitted to conversations that people have marked
(`make twin` fits them anew, and tries those of all but one on that one; docs/chains.md has the
figures), and rounded.
"""

import math
import re
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from strandline.models.language import Said
from strandline.models.words import bare, listed, ordinary, plain, sentences, stems, tokens

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
_HEADING = re.compile(r"\s*([^.:!?;,\n—–]{2,40})[.:—–!](?:\s+|$)(?=\S)")  # noqa: RUF001
"""A few words, and something behind them."""
_HEADING_WORDS = 4
_RECENT = 4
"""Events whose words a message is compared with: in all of a long run it would find any word."""
_WORD = re.compile(r"[A-Za-z'’]+")  # noqa: RUF001
_USUAL_MINUTES = 1.0
"""The pause between two turns that a talk has before it shows its own."""
_JITTER_MINUTES = 0.5
"""Added to pauses before they are compared: seconds say nothing."""
_GROWN = 8
"""Events from which a topic is no younger than any other."""
_SHORT = 5
"""Words of a message that says little by itself, at most."""
_PERSONS = frozenset({"he", "she", "him", "her", "his", "he's", "she's", "he'll", "she'll"})
_THINGS = frozenset({"it", "them", "they", "that", "this", "those", "these"})
_LEANING_WORDS = 20
_ASKING = frozenset({"what", "which", "who", "whose", "why", "where", "how", "when"})


class Cues(NamedTuple):
    """What speaks for a new topic, and against it."""

    age: float
    """ln of the topic's events so far, up to 8."""
    pause: float
    """ln of the pause before it in pauses usual in this topic, which is their median."""
    again: bool
    """Who spoke last speaks again."""
    opened: bool
    """Who opened the topic speaks."""
    answers: bool
    """Somebody else had asked."""
    settled: bool
    """An agent has just told that something is done, or will be."""
    replies: bool
    """Its first word answers: "yes", "then", "both"."""
    shifts: bool
    """It opens with a phrase such as "by the way"."""
    news: bool
    """It begins with what happened or is wanted: somebody rang, a letter came."""
    heading: bool
    """It opens with a few new words that stand by themselves: "The boat." """
    stranger: bool
    """Among its first three words is one that is neither of every day nor said before: a name."""
    points_back: bool
    """Its first words lean on something said: "it", "that", "those"."""
    leans: bool
    """Anywhere it has such a word for a thing: "it", "those"."""
    person: bool
    """Its first words lean on somebody: "she"."""
    new: float
    """ln(1 + stems that the topic has not had lately)."""
    shared: float
    """ln(1 + stems that it has)."""
    first_shared: float
    """That of the first sentence alone."""
    length: float
    """ln(1 + words)."""
    short: bool
    """Of five words at most."""
    parts: float
    """ln(1 + sentences)."""
    asks: bool
    """It is a question."""
    asks_what: bool
    """It begins with a question word."""
    loud: bool
    """It has an exclamation mark."""


WEIGHTS = (
    1.74,
    0.68,
    1.8,
    -0.48,
    -1.48,
    1.21,
    -0.92,
    1.71,
    1.0,
    0.55,
    0.78,
    -0.81,
    -0.28,
    -1.1,
    0.72,
    -1.05,
    -1.09,
    0.46,
    -0.72,
    -0.5,
    0.35,
    0.88,
    1.26,
)
"""Of the cues, in their order."""
BIAS = -5.27


def goes_on(before: Sequence[Said], message: Said) -> bool:
    """Whether `message` goes on with the topic of the events `before` it."""
    return not before or BIAS + math.sumprod(WEIGHTS, cues(before, message)) < 0


def cues(before: Sequence[Said], message: Said) -> Cues:
    """What `goes_on` weighs; `before` holds an event at least."""
    last, text = before[-1], message.text
    recent = before[-_RECENT:]
    known = set[str]().union(*(stems(said.text) for said in recent))
    here, parts = set(stems(text)), sentences(text)
    words = [plain(word) for word in _WORD.findall(text)]
    opening = text.split()
    length = len(tokens(text))
    answers = last.speaker != message.speaker and _asks(last.text)
    return Cues(
        age=math.log(min(len(before), _GROWN)),
        pause=_pause(recent, message),
        again=last.speaker == message.speaker,
        opened=before[0].speaker == message.speaker,
        answers=answers,
        settled=last.role != "user" and not answers and bool(_SETTLED.search(last.text)),
        replies=not listed("replies").isdisjoint(words[:1]),
        shifts=bool(_SHIFTS.search(" ".join(opening[:_OPENING_WORDS])) or _GREETING.match(text)),
        news=bool(_NEWS.search(" ".join(opening[:_NEWS_WORDS]))),
        heading=_is_headed(text, known),
        stranger=_names_somebody(text, recent),
        points_back=not listed("pointers").isdisjoint(words[:_OPENING_WORDS]),
        leans=not _THINGS.isdisjoint(words[:_LEANING_WORDS]),
        person=not _PERSONS.isdisjoint(words[:_OPENING_WORDS]),
        new=math.log1p(len(here - known)),
        shared=math.log1p(len(here & known)),
        first_shared=math.log1p(len(known.intersection(stems(parts[0])))) if parts else 0.0,
        length=math.log1p(length),
        short=length <= _SHORT,
        parts=math.log1p(len(parts)),
        asks=_asks(text),
        asks_what=not _ASKING.isdisjoint(words[:1]),
        loud="!" in text,
    )


def _is_headed(text: str, known: set[str]) -> bool:
    found = _HEADING.match(text)
    words = [plain(word) for word in _WORD.findall(found[1])] if found else []
    if not 0 < len(words) <= _HEADING_WORDS or words[0] in listed("replies") | _ASKING:
        return False
    leans = listed("pointers") | {"i", "we", "you", "i'm", "i'll"}
    told = set(stems(" ".join(words)))
    return bool(told) and told.isdisjoint(known) and leans.isdisjoint(words)


def _names_somebody(text: str, recent: Sequence[Said]) -> bool:
    said = " ".join(one.text for one in recent).lower()
    first = [word for word in _WORD.findall(text)[:3] if len(word) > 2]
    return any(not ordinary(word) and bare(word) not in said for word in first)


def _pause(recent: Sequence[Said], message: Said) -> float:
    pauses = [_minutes(one, other) for one, other in pairwise(recent)]
    usual = statistics.median([*pauses, _USUAL_MINUTES, _USUAL_MINUTES])
    return math.log((_JITTER_MINUTES + _minutes(recent[-1], message)) / (_JITTER_MINUTES + usual))


def _minutes(one: Said, other: Said) -> float:
    """Between two events; clocks that go back show no time."""
    return max(0.0, (other.at - one.at).total_seconds() / 60)


def _asks(text: str) -> bool:
    """Whether the last sentence is a question."""
    found = sentences(text)
    return bool(found) and found[-1].rstrip("\"'”’)").endswith(("?", "？", "؟"))  # noqa: RUF001
