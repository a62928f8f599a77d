"""Whether a message goes on with a topic, told from its words, its time and who said what before.

A logistic score of eight features. The weights were fitted to the conversations under
tests/bench/corpus and events/demo together, rounded, and tried on each with the other alone
(docs/chains.md); the cosine of the two messages' vectors added nothing to them.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from strandline.models.language import Said
from strandline.models.words import sentences, stems, tokens

_SHORT = 8
"""Words; a message of so few seldom opens a topic: it leans on what was said."""
_SETTLED = 3
"""User messages from which a topic is no younger than any other."""
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


class Cues(NamedTuple):
    """What speaks for a new topic, and against it."""

    new: float
    """ln(1 + stems that the topic has not had)."""
    shared: float
    """ln(1 + stems that it has had)."""
    answers: bool
    """Somebody else had asked."""
    shifts: bool
    """It opens with a phrase such as "by the way"."""
    pause: float
    """ln(1 + minutes since the event before)."""
    short: bool
    age: float
    """ln of the topic's user messages so far, up to 3."""
    closed: bool
    """A person's short statement came before it, as "Deal, I'll tell them."."""


WEIGHTS = (1.5, -1.7, -1.5, 1.8, 1.4, -1.2, 2.3, 0.9)
"""Of the cues, in their order."""
BIAS = -5.3


def goes_on(before: Sequence[Said], message: Said) -> bool:
    """Whether `message` goes on with the topic of the events `before` it."""
    return not before or BIAS + math.sumprod(WEIGHTS, cues(before, message)) < 0


def cues(before: Sequence[Said], message: Said) -> Cues:
    """What `goes_on` weighs; `before` holds an event at least."""
    last = before[-1]
    known = {stem for said in before[-_RECENT:] for stem in stems(said.text)}
    said_now = set(stems(message.text))
    opening = " ".join(message.text.split()[:_OPENING_WORDS])
    spoken = sum(said.role == "user" and said.type == "message" for said in before)
    minutes = max(0.0, (message.at - last.at).total_seconds() / 60)
    return Cues(
        new=math.log1p(len(said_now - known)),
        shared=math.log1p(len(said_now & known)),
        answers=last.speaker != message.speaker and _asks(last.text),
        shifts=bool(_SHIFTS.search(opening) or _GREETING.match(opening)),
        pause=math.log1p(minutes),
        short=len(tokens(message.text)) <= _SHORT,
        age=math.log(min(max(spoken, 1), _SETTLED)),
        closed=last.role == "user"
        and not _asks(last.text)
        and len(tokens(last.text)) <= _SHORT + 1,
    )


def _asks(text: str) -> bool:
    """Whether the last sentence is a question."""
    found = sentences(text)
    return bool(found) and found[-1].rstrip("\"'”’)").endswith(("?", "？", "؟"))  # noqa: RUF001
