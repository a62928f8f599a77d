"""Whether a message goes on with a topic, told from its words, its time and who said what before.

A logistic score of 14 cues. Weights and bias were fitted to six conversations (`make twin` fits
them anew and tries those of five on the sixth; docs/chains.md has the figures), and rounded.
"""

import math
import re
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from strandline.models.language import Said
from strandline.models.words import listed, plain, sentences, stems, tokens

_SHIFTS = re.compile(
    r"""\b(?:by\ the\ way | btw | next | unrelated | separately | also | anyway | another | now
    | (?:different|other|new|separate|second|third|last|final|one|quick|useful|next|two|few)
      \ (?:more\ )?(?:subjects? | topics? | questions? | matters? | things? | items? | jobs?
      | points? | notes? | tasks?)
    | (?:something|anything|one\ thing)\ (?:else|different|more) | one\ more | last\ one
    | (?:moving|move|switching|turning)\ (?:on|to) | on\ (?:another|a\ different)\ note
    | while\ (?:i|we|you)(?:'m|'re|\ have|\ are)? | before\ i\ forget | speaking\ of | talking\ of
    | as\ for | about\ (?:the|that|our|your) | regarding | change\ of | for\ the\ (?:record|minutes)
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_OPENING_WORDS = 6
"""Where a phrase that turns to something else has to stand."""
_GREETING = re.compile(
    r"(?:hi|hey|hello|good (?:morning|afternoon|evening)|long time)\b", re.IGNORECASE
)
_RECENT = 6
"""Events whose words a message is compared with: in all of a long run it would find any word."""


_DONE = re.compile(
    r"\b(?:thanks|thank you|perfect|great|done|noted|deal|agreed|booked|good)\b", re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z'’]+")  # noqa: RUF001
_USUAL_MINUTES = 1.0
"""The pause between two turns that a talk has before it shows its own."""
_JITTER_MINUTES = 0.5
"""Added to pauses before they are compared: seconds say nothing."""
_GROWN = 8
"""Events from which a topic is no younger than any other."""


class Cues(NamedTuple):
    """What speaks for a new topic, and against it."""

    pause: float
    """ln of the pause before it in pauses usual in this topic, which is their median."""
    again: bool
    """Who spoke last speaks again."""
    echo: float
    """ln(1 + stems that the event before it has too)."""
    age: float
    """ln of the topic's events so far, up to 8."""
    new: float
    """ln(1 + stems that the topic has not had lately)."""
    answers: bool
    """Somebody else had asked."""
    answers_agent: bool
    """An agent had."""
    shifts: bool
    """It opens with a phrase such as "by the way"."""
    points_back: bool
    """Its first words lean on something said: "she", "that", "those"."""
    shared: float
    """ln(1 + stems that the topic has had)."""
    done: bool
    """What came before it rounds something off, as "Noted, thanks."."""
    names_a_thing: bool
    """It opens with "the", "our" or "my"."""
    length: float
    """ln(1 + words)."""
    asks: bool
    """It is a question."""


WEIGHTS = (1.0, 1.5, -1.3, 2.4, 1.1, -1.9, -1.2, 1.4, -1.2, -1.8, 1.1, 0.7, 0.9, 0.7)
"""Of the cues, in their order."""
BIAS = -8.1


def goes_on(before: Sequence[Said], message: Said) -> bool:
    """Whether `message` goes on with the topic of the events `before` it."""
    return not before or BIAS + math.sumprod(WEIGHTS, cues(before, message)) < 0


def cues(before: Sequence[Said], message: Said) -> Cues:
    """What `goes_on` weighs; `before` holds an event at least."""
    last = before[-1]
    topic = [set(stems(said.text)) for said in before]
    here = set(stems(message.text))
    words = [plain(word) for word in _WORD.findall(message.text)]
    opening = " ".join(message.text.split()[:_OPENING_WORDS])
    answers = last.speaker != message.speaker and _asks(last.text)
    return Cues(
        pause=_pause(before, message),
        again=last.speaker == message.speaker,
        echo=math.log1p(len(here & topic[-1])),
        age=math.log(min(len(before), _GROWN)),
        new=math.log1p(len(here.difference(*topic[-_RECENT:]))),
        answers=answers,
        answers_agent=answers and last.role != "user",
        shifts=bool(_SHIFTS.search(opening) or _GREETING.match(opening)),
        points_back=not listed("pointers").isdisjoint(words[:_OPENING_WORDS]),
        shared=math.log1p(len(here.intersection(set[str]().union(*topic)))),
        done=bool(_DONE.search(last.text)),
        names_a_thing=words[:1] in (["the"], ["our"], ["my"]),
        length=math.log1p(len(tokens(message.text))),
        asks=_asks(message.text),
    )


def _pause(before: Sequence[Said], message: Said) -> float:
    pauses = [_minutes(one, other) for one, other in pairwise(before)]
    usual = statistics.median([*pauses, _USUAL_MINUTES, _USUAL_MINUTES])
    return math.log((_JITTER_MINUTES + _minutes(before[-1], message)) / (_JITTER_MINUTES + usual))


def _minutes(one: Said, other: Said) -> float:
    """Between two events; clocks that go back show no time."""
    return max(0.0, (other.at - one.at).total_seconds() / 60)


def _asks(text: str) -> bool:
    """Whether the last sentence is a question."""
    found = sentences(text)
    return bool(found) and found[-1].rstrip("\"'”’)").endswith(("?", "？", "؟"))  # noqa: RUF001
