"""What each feature of recall earns, and what each idea for another would give, held out.

A part of `make bench-held-out ARGS=--ideas`. For each conversation the weights are fitted anew to
all others with an idea's column beside the features, or without a feature. What stands in the table
is the difference from the fit to the features as they are.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from uuid import UUID

import numpy as np

from strandline.recall.features import Features
from strandline.recall.importance import compute_recency
from tests.bench import recall_corpora
from tests.bench.listwise import Stack, corpora_of, hold_out
from tests.bench.plain_rankings import date_text, score_bm25, stem_texts
from tests.bench.recall_corpora import Corpus
from tests.bench.recall_service import RecallService
from tests.bench.relevance_samples import Array, Sample, Scores

_ASKS_NUMBER = re.compile(r"\bhow (many|much|long|old|often|far|big|tall)\b", re.I)
_HOLDS_NUMBER = re.compile(
    r"\d|\b(one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty"
    r"|hundred|thousand|half|dozen)\b",
    re.I,
)
_ASKS_TIME = re.compile(r"\bwhen\b|\b(what|which) (day|date|month|year|time)\b|\bhow long\b", re.I)
_HOLDS_TIME = re.compile(
    r"\b(yesterday|today|tomorrow|tonight|last|next|ago|week|weekend|month|year|morning|evening"
    r"|(mon|tues|wednes|thurs|fri|satur|sun)day|\d{1,2}(:\d\d)?\s?(am|pm)|\d{4}"
    r"|january|february|march|april|may|june|july|august|september|october|november|december)\b",
    re.I,
)
_COSINE, _WORDS = Features._fields.index("cosine"), Features._fields.index("words")


@dataclass(frozen=True)
class Texts:
    """What ideas know besides what recall reads: of events by their id, of questions by their
    text."""

    contents: Mapping[UUID, str]
    """Of events."""
    agents: frozenset[UUID]
    """What agents said."""
    stems: Mapping[UUID, Mapping[str, int]]
    """Of an event with its date and speaker, counted."""
    questions: Mapping[str, Mapping[str, int]]


def read_texts(service: RecallService, corpora: Sequence[Corpus]) -> Texts:
    """The texts of all that is stored, and of all questions."""
    # ids are in the order in which corpora and their events were stored
    rows = [event for corpus in corpora for event in corpus.events]
    ids = map(UUID, service.event_keys)
    events = dict(zip(ids, rows, strict=True))
    stems = stem_texts(service, [date_text(event) for event in events.values()])
    questions = [question.text for corpus in corpora for question in corpus.questions]
    return Texts(
        {event_id: event["content"] for event_id, event in events.items()},
        frozenset(event_id for event_id, event in events.items() if event["role"] == "agent"),
        dict(zip(events, stems, strict=True)),
        dict(zip(questions, stem_texts(service, questions), strict=True)),
    )


# ideas --------------------------------------------------------------------------------------------


def _cosines(sample: Sample) -> Array:
    return sample.features[:, _COSINE]


def _words(sample: Sample) -> Array:
    return sample.features[:, _WORDS]


def _lanes(sample: Sample) -> list[list[int]]:
    """The candidates of each session, in order of its places."""
    lanes: dict[tuple[UUID, str], list[int]] = defaultdict(list)
    for n, row in enumerate(sample.candidates.rows):
        lanes[row.scope_id, row.session_id].append(n)
    rows = sample.candidates.rows
    return [sorted(lane, key=lambda n: rows[n].place) for lane in lanes.values()]


def _weight_of(sample: Sample, bits: int) -> float:
    events, words = sample.candidates.events_in_view, sample.candidates.words
    return sum(word.weight(events) for n, word in enumerate(words) if bits >> n & 1)


def _share_of(sample: Sample, bits: int) -> float:
    return _weight_of(sample, bits) / (_weight_of(sample, -1) or 1.0)


def _term_counts(sample: Sample, texts: Texts) -> Array:
    rows = sample.candidates.rows
    query = texts.questions[sample.candidates.asking.question.text]
    return np.array(score_bm25([texts.stems[row.event_id] for row in rows], query))


def _session_words(sample: Sample, _: Texts) -> Array:
    column = np.zeros(len(sample.features))
    for lane in _lanes(sample):
        bits = 0
        for n in lane:
            bits |= sample.candidates.rows[n].word_bits
        column[lane] = _share_of(sample, bits)
    return column


def _session_cosine(sample: Sample, _: Texts) -> Array:
    column = np.zeros(len(sample.features))
    for lane in _lanes(sample):
        column[lane] = _cosines(sample)[lane].max()
    return column


def _words_before(sample: Sample, _: Texts) -> Array:
    rows, column = sample.candidates.rows, np.zeros(len(sample.features))
    for lane in _lanes(sample):
        at = {rows[n].place: rows[n].word_bits for n in lane}
        for n in lane:
            bits = rows[n].word_bits | at.get(rows[n].place - 1, 0)
            column[n] = _share_of(sample, bits)
    return column


def _word_weights(sample: Sample, _: Texts) -> Array:
    return _words(sample) * _weight_of(sample, -1)


def _words_asked_before(sample: Sample, _: Texts) -> Array:
    rows, column = sample.candidates.rows, np.zeros(len(sample.features))
    for lane in _lanes(sample):
        at = {rows[n].place: rows[n].word_bits for n in lane if rows[n].question_bytes}
        for n in lane:
            column[n] = _share_of(sample, at.get(rows[n].place - 1, 0))
    return column


def _follows_question(sample: Sample, _: Texts) -> Array:
    rows, column = sample.candidates.rows, np.zeros(len(sample.features))
    for lane in _lanes(sample):
        questions = {rows[n].place for n in lane if rows[n].question_bytes}
        column[lane] = [float(rows[n].place - 1 in questions) for n in lane]
    return column


def _words_in_question(sample: Sample, _: Texts) -> Array:
    return _words(sample) / (_words(sample).max() or 1.0)


def _rank_of_words(sample: Sample, _: Texts) -> Array:
    column = np.zeros(len(sample.features))
    order = np.argsort(-_words(sample), kind="stable")
    column[order] = 1 / (10 + np.arange(1, len(order) + 1))
    return np.where(_words(sample) > 0, column, 0.0)


def _is_agent(sample: Sample, texts: Texts) -> Array:
    return np.array([float(row.event_id in texts.agents) for row in sample.candidates.rows])


def _any_length(sample: Sample, texts: Texts) -> Array:
    rows = sample.candidates.rows
    return np.array([math.log1p(len(texts.contents[row.event_id])) for row in rows])


def _matching_kind(
    sample: Sample, texts: Texts, asks: re.Pattern[str], holds: re.Pattern[str]
) -> Array:
    rows = sample.candidates.rows
    if not asks.search(sample.candidates.asking.question.text):
        return np.zeros(len(rows))
    return np.array([float(bool(holds.search(texts.contents[row.event_id]))) for row in rows])


def _number(sample: Sample, texts: Texts) -> Array:
    return _matching_kind(sample, texts, _ASKS_NUMBER, _HOLDS_NUMBER)


def _time(sample: Sample, texts: Texts) -> Array:
    return _matching_kind(sample, texts, _ASKS_TIME, _HOLDS_TIME)


def _cosine_in_question(sample: Sample, _: Texts) -> Array:
    deviation = float(_cosines(sample).std()) or 1.0
    return (_cosines(sample) - _cosines(sample).mean()) / deviation


def _above_neighbours(sample: Sample, _: Texts) -> Array:
    places = [Features._fields.index(name) for name in ("cosine_before", "cosine_after")]
    return np.maximum(0.0, _cosines(sample) - sample.features[:, places].max(1))


def _cosine_times_words(sample: Sample, _: Texts) -> Array:
    return _cosines(sample) * _words(sample)


def _cosine_squared(sample: Sample, _: Texts) -> Array:
    return _cosines(sample) ** 2


def _recency(sample: Sample, _: Texts) -> Array:
    asking = sample.candidates.asking
    asked_at = asking.question.asked_at or asking.home.events[-1]["occurred_at"]
    now = recall_corpora.moment(asked_at).astimezone(UTC)
    return np.array([compute_recency(now - row.said_at, 0.0) for row in sample.candidates.rows])


IDEAS: Mapping[str, Callable[[Sample, Texts], Array]] = {
    "how often an event holds a word, and its length (BM25)": _term_counts,
    "words of the event and the one before it": _words_before,
    "words of the whole session": _session_words,
    "the highest cosine of the session": _session_cosine,
    "the weight of the words, not their share": _word_weights,
    "words, to the most that any event holds": _words_in_question,
    "the rank by words, 1 / (10 + rank)": _rank_of_words,
    "whether an agent speaks": _is_agent,
    "the logarithm of the length": _any_length,
    "a number, where the question asks for one": _number,
    "a time, where the question asks for one": _time,
    "following a question": _follows_question,
    "words of a question just before it": _words_asked_before,
    "the cosine in deviations of the question's candidates": _cosine_in_question,
    "being nearer than both neighbours": _above_neighbours,
    "cosine times the share of words": _cosine_times_words,
    "the square of the cosine": _cosine_squared,
    "how recent an event is": _recency,
}


# measures -----------------------------------------------------------------------------------------


def measure(samples: Sequence[Sample], texts: Texts) -> dict[str, Any]:
    """By idea, and by feature left out, the difference of R@10 and MRR for each group, held out."""
    folds = [[name] for name, _ in corpora_of(samples)]
    plain = Stack(samples)

    def held_out(stack: Stack, without: int | None = None) -> dict[str, Scores]:
        return stack.by_group(hold_out(stack, folds, lambda rest: stack.fit(rest, without))[0])

    whole = held_out(plain)
    results = {
        "ideas": {
            name: held_out(Stack(samples, [idea(s, texts) for s in samples]))
            for name, idea in IDEAS.items()
        },
        "without": {name: held_out(plain, place) for place, name in enumerate(Features._fields)},
    }
    return {
        "all features": {group: list(scores) for group, scores in whole.items()},
        **{
            part: {name: _differences(scores, whole) for name, scores in rows.items()}
            for part, rows in results.items()
        },
    }


def _differences(
    scores: Mapping[str, Scores], whole: Mapping[str, Scores]
) -> dict[str, list[float]]:
    return {
        group: [
            round(score - before, 3) for score, before in zip(result, whole[group], strict=True)
        ]
        for group, result in scores.items()
    }


def table(result: Mapping[str, Any]) -> list[str]:
    """As Markdown."""
    whole = result["all features"]
    lines = [
        f"| R@10 / MRR, held out | {' | '.join(whole)} |",
        "|---" * (len(whole) + 1) + "|",
        f"| all features | {' | '.join(f'{r:.3f} / {m:.3f}' for r, m in whole.values())} |",
    ]
    for part, sign in (("ideas", "with"), ("without", "without")):
        for name, groups in result[part].items():
            text = " | ".join(f"{r:+.3f} / {m:+.3f}" for r, m in groups.values())
            lines.append(f"| {sign} {name} | {text} |")
    return lines
