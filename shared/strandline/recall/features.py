"""The features of candidate events for a question, from the words and cosines of each event and its
neighbours."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal, NamedTuple
from uuid import UUID

from strandline.recall.cosine_scale import CosineDistribution
from strandline.recall.question_mentions import QuestionNamesAndDates

WINDOW = 4
"""The neighbours of an event are this many events of its session before and after it."""
_LONG_BYTES = 150
"""A text of this many bytes, one or two sentences, is long enough for any answer."""
_BRIEF_BYTES = 360
"""A text of this many bytes, 60 words, is short enough to say little of other matters."""
PASSAGE_SHARE = 0.4
"""The share of the nearest passage in the cosine of a long text."""
_MIN_EVENTS = 500
"""A smaller view counts as one with this many events, or every word in it would be common."""


class QuestionWord(NamedTuple):
    """A word of the question, in the index's form, and the number of visible events that contain
    it."""

    text: str
    events: int
    stands_for: str | None = None
    """The word of the question, contained in no visible event, of which this is another spelling;
    None for the question's own words."""
    certainty: float = 1.0
    """How much of its weight another spelling has: how likely it is what was meant."""

    def compute_inverse_frequency(self, events_in_view: int) -> float:
        """How informative the word is: the inverse document frequency of Robertson and Zaragoza
        ("The Probabilistic Relevance Framework", 2009), as `inverse_frequency` in the database."""
        total = max(events_in_view, self.events, _MIN_EVENTS)
        return math.log(1 + (total - self.events + 0.5) / (self.events + 0.5))


@dataclass(slots=True)
class CandidateEvent:
    """An event that may answer a question."""

    event_id: UUID
    scope_id: UUID
    session_id: str
    """For a statement, its own id: it is in no lane and has no neighbours."""
    seq: int
    place: int
    """Its position among the events of its session in this scope, relative to an arbitrary start. A
    gap of more than WINDOW events counts as a gap of WINDOW + 1."""
    speaker: str | None
    said_at: datetime
    said_on: date
    """The day on which it happened, in the tenant's time zone."""
    word_bits: int
    """Bit n is set if the event contains word n of the question."""
    cosine: float | None
    """The cosine similarity with the question; None unless both have a vector."""
    passage_cosines: Sequence[float] | None
    """Those of the passages of a long text, in order; None unless these have vectors."""
    text_bytes: int
    """The size of its text in bytes; 0 if the text is stored as a payload."""
    question_bytes: int
    """The size in bytes of the question at the end of its text."""
    is_statement: bool
    author: Literal["agent", "tool"] | None
    """`agent` for what an agent said, thought or did, `tool` for an observation."""
    says_nothing: bool
    """Whether its text is nothing but short questions, or an agent's answer that it knows
    nothing."""


class EventScoreFeatures(NamedTuple):
    """The features whose weighted sum is an event's score, or the weights."""

    cosine: float
    """The cosine similarity of the question and the event, including its date and speaker. Here and
    below, a cosine counts in deviations of the question's cosines with the events in view, so that
    it means the same in any embedding space."""
    words: float
    """The share of the question's words, by weight, that the event contains; less in a long text,
    by the square root of its length, as in BM25: the more it says, the less a word in it tells."""
    words_nearby: float
    """The same share, for the event together with four events before and four after it."""
    cosine_before: float
    """The cosine of the event before it in its session; 0, the mean, if that event does not exist
    or is no candidate: a missing neighbour counts neither for nor against an event."""
    cosine_after: float
    """The cosine of the event after it."""
    cosine_nearby: float
    """The mean cosine of the two events before it and the two after it."""
    other_speaker: float
    """1 if the question names a speaker and the event has another one."""
    question_share: float
    """The share of its text that is the question at its end: 1 if the text is only a question."""
    date: float
    """2 if the question names its day, 1 its month or period, 0.5 another part of its month."""
    length: float
    """1 for a text of at least 150 bytes, a payload or a statement; for a shorter text,
    proportionally less, because short messages seldom contain an answer."""
    by_agent: float
    """1 if an agent said it: agents write more than people, and repeat what these said. The weight
    is fixed: how many answers agents said differs by corpus, and a fit would follow that."""
    by_tool: float
    """1 if it is an observation, such as the output of a tool."""
    says_nothing: float
    """1 if its text is nothing but short questions, or an agent's answer that it knows nothing. The
    weight is fixed, and puts it below whatever says something: an earlier question in the same
    words has the highest cosine of all, and no answer in it."""
    newness: float = 0.0
    """For a question about now, from 0 for the oldest to 1 for the newest of the ten best short
    messages of people: what was said later holds, and answers better than what it replaces. The
    weight is fixed."""


def compute_score_features(
    question: QuestionNamesAndDates,
    words: Sequence[QuestionWord],
    candidates: Sequence[CandidateEvent],
    events_in_view: int,
    scale: CosineDistribution,
    cosine_by_words: float,
    tool_scale: CosineDistribution | None = None,
) -> list[EventScoreFeatures]:
    """The features of each candidate. Only candidates count as neighbours: the words and cosine of
    other events are not known. `scale` is that of the question's cosines, `tool_scale` that of its
    cosines with tools' output, by default the same. An event without a vector
    counts as one of the mean cosine, plus up to `cosine_by_words` deviations in proportion to the
    share of the question's words that it contains.

    Long neighbours count less: an agent's long answer holds words and meanings of everything that
    it is about, and so would lift whatever was said around it."""
    speakers = {candidate.speaker for candidate in candidates}
    mentioned = {speaker for speaker in speakers if speaker and question.mentions_speaker(speaker)}
    others = {speaker: float(bool(mentioned) and speaker not in mentioned) for speaker in speakers}
    share_of_bits = _WeightShareByWordBits(
        [word.certainty * word.compute_inverse_frequency(events_in_view) for word in words],
        _sum_weights_of_own_words(words, events_in_view),
    )

    def compute_features_of_candidate(
        candidate: CandidateEvent, lane: _LaneSignalsByPosition
    ) -> EventScoreFeatures:
        before_2, before, own, after, after_2 = lane.list_cosines_around(candidate.place)
        damping = 1.0 if lane.is_brief else lane.compute_long_neighbour_damping(candidate.place)
        own_damping = _compute_long_text_damping(candidate)
        words = own_damping * share_of_bits[candidate.word_bits]
        bits_around = lane.combine_word_bits_around(candidate.place)
        return EventScoreFeatures(
            cosine=words * cosine_by_words if candidate.cosine is None else own,
            words=words,
            words_nearby=own_damping * damping * share_of_bits[bits_around],
            cosine_before=damping * before,
            cosine_after=damping * after,
            cosine_nearby=damping * (before_2 + before + after + after_2) / 4,
            other_speaker=others[candidate.speaker],
            question_share=damping * candidate.question_bytes / (candidate.text_bytes or 1),
            date=question.score_day_match(candidate.said_on) if question.times else 0.0,
            length=damping * _compute_length_feature(candidate),
            by_agent=float(candidate.author == "agent"),
            by_tool=float(candidate.author == "tool"),
            says_nothing=float(candidate.says_nothing),
        )

    lanes = _build_lane_signals_per_candidate(candidates, scale, tool_scale or scale)
    return [
        compute_features_of_candidate(candidate, lane)
        for candidate, lane in zip(candidates, lanes, strict=True)
    ]


def _compute_long_text_damping(candidate: CandidateEvent) -> float:
    """1 for a text of at most 60 words or a payload, else the square root of its share of that."""
    return math.sqrt(_BRIEF_BYTES / max(candidate.text_bytes, _BRIEF_BYTES))


def _add_nearest_passage(cosine: float, passage_cosines: Sequence[float] | None) -> float:
    """The cosine of an event, of which that of its nearest passage is a part: what is said in one
    sentence of a long text moves the text's own vector little."""
    if not passage_cosines:
        return cosine
    return (1 - PASSAGE_SHARE) * cosine + PASSAGE_SHARE * max(passage_cosines)


def is_short_message_of_person(candidate: CandidateEvent) -> bool:
    """Whether it is a message of at most 60 words that neither an agent nor a tool wrote."""
    is_message_of_person = candidate.author is None and not candidate.is_statement
    return is_message_of_person and 0 < candidate.text_bytes <= _BRIEF_BYTES


def _build_lane_signals_per_candidate(
    candidates: Sequence[CandidateEvent], scale: CosineDistribution, tool_scale: CosineDistribution
) -> "list[_LaneSignalsByPosition]":
    """The lane of each candidate."""
    # Integer keys are faster: Python hashes a UUID in interpreted code.
    keys = [(candidate.scope_id.int, candidate.session_id) for candidate in candidates]
    members: dict[tuple[int, str], list[CandidateEvent]] = defaultdict(list)
    for key, candidate in zip(keys, candidates, strict=True):
        members[key].append(candidate)
    lanes = {
        key: _LaneSignalsByPosition(of_lane, scale, tool_scale) for key, of_lane in members.items()
    }
    return [lanes[key] for key in keys]


class _LaneSignalsByPosition:
    """The words, cosines and sizes of one lane's candidates, one element for each position."""

    def __init__(
        self,
        candidates: Sequence[CandidateEvent],
        scale: CosineDistribution,
        tool_scale: CosineDistribution,
    ) -> None:
        places = [candidate.place for candidate in candidates]
        self._first = min(places) - WINDOW
        length = max(places) - self._first + WINDOW + 1
        self._bits = [0] * length
        self._cosines = [0.0] * length
        self._bytes = [0] * length
        for place, candidate in zip(places, candidates, strict=True):
            self._bits[place - self._first] = candidate.word_bits
            self._bytes[place - self._first] = candidate.text_bytes
            if candidate.cosine is not None:
                own_scale = tool_scale if candidate.author == "tool" else scale
                cosine = _add_nearest_passage(candidate.cosine, candidate.passage_cosines)
                self._cosines[place - self._first] = own_scale.standardize(cosine)
        self.is_brief = max(self._bytes) <= _BRIEF_BYTES  # as most are: nothing to compute

    def combine_word_bits_around(self, place: int) -> int:
        """The words that the event at a position and its neighbours contain together."""
        n = place - self._first
        bits = 0
        for near in self._bits[n - WINDOW : n + WINDOW + 1]:
            bits |= near
        return bits

    def list_cosines_around(self, place: int) -> list[float]:
        """The cosines of two events before a position, of its own, and of two after it."""
        n = place - self._first
        return self._cosines[n - 2 : n + 3]

    def compute_long_neighbour_damping(self, place: int) -> float:
        """1 if the two events before a position and the two after it have at most 60 words on
        average, else in inverse proportion. A payload, whose size is not looked up, does not
        count."""
        n = place - self._first
        before, after = self._bytes[n - 2 : n], self._bytes[n + 1 : n + 3]
        sizes = [size for size in (*before, *after) if size]
        return min(1.0, _BRIEF_BYTES * len(sizes) / sum(sizes)) if sizes else 1.0


class _WeightShareByWordBits(dict[int, float]):
    """The share of the question's own words, by weight, that a set of words makes up. Few sets
    occur, so each sum is cached."""

    def __init__(self, weights: Sequence[float], total: float) -> None:
        self._weights = [weight / total for weight in weights]

    def __missing__(self, bits: int) -> float:
        share = sum(weight for n, weight in enumerate(self._weights) if bits >> n & 1)
        self[bits] = share
        return share


def _sum_weights_of_own_words(words: Sequence[QuestionWord], events_in_view: int) -> float:
    """The weight of all words that the question itself contains."""
    own_words = (word for word in words if word.stands_for is None)
    return sum(word.compute_inverse_frequency(events_in_view) for word in own_words) or 1.0


def find_highest_standardized_cosine(
    candidates: Sequence[CandidateEvent],
    features: Sequence[EventScoreFeatures],
    usual: CosineDistribution,
) -> float:
    """The highest cosine of the candidates, in deviations of the space's usual scale; that of an
    event without a vector is the assumed one."""
    return max(
        own.cosine if candidate.cosine is None else usual.standardize(candidate.cosine)
        for candidate, own in zip(candidates, features, strict=True)
    )


def _compute_length_feature(candidate: CandidateEvent) -> float:
    """A statement counts as long, because it was written to be kept, and so does a payload."""
    is_message = candidate.text_bytes > 0 and not candidate.is_statement
    return min(candidate.text_bytes, _LONG_BYTES) / _LONG_BYTES if is_message else 1.0


class AnswerabilityFeatures(NamedTuple):
    """The features that predict whether a view contains an answer at all. None of them is on the
    view's own scale of cosines, on which something is always far above the mean, whether it answers
    or not."""

    cosine: float
    """The highest cosine, in deviations of the embedding space's usual scale."""
    words_absent: float
    """The share of the question's words, by weight, that no visible event contains. Of a word with
    another spelling, what that is uncertain."""
    words_nearby: float
    """The highest share that one of the best five candidates contains together with its
    neighbours, where long ones count less, but no less than it contains alone."""
    words: float
    """The highest share that one of the best five candidates contains."""
    log_events: float
    """The logarithm of the number of events searched: the more events there are, the closer the
    closest one is by chance."""


_MAX_FITTED_EVENTS = 1000
"""Larger views were not part of the fit, and count as views of this many events."""


def compute_answerability_features(
    best: Sequence[EventScoreFeatures],
    highest_cosine: float,
    words: Sequence[QuestionWord],
    events_in_view: int,
    events_searched: int,
) -> AnswerabilityFeatures:
    """The features of an answer, from the features of its candidates, best first; there is at least
    one. `highest_cosine` is on the space's usual scale. Without filters, all visible events are
    searched."""
    total = _sum_weights_of_own_words(words, events_in_view)
    found_spellings = defaultdict[str | None, float](float)
    for word in words:
        found_spellings[word.stands_for] += word.certainty
    absent = sum(
        word.compute_inverse_frequency(events_in_view) * (1 - found_spellings[word.text])
        for word in words
        if not word.events and word.stands_for is None
    )
    return AnswerabilityFeatures(
        cosine=highest_cosine,
        words_absent=absent / total,
        words_nearby=max(max(one.words_nearby, one.words) for one in best[:5]),
        words=max(candidate.words for candidate in best[:5]),
        log_events=math.log(min(max(events_searched, 1), _MAX_FITTED_EVENTS)),
    )
