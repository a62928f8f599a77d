"""LoCoMo (Maharana et al., ACL 2024) as retrieval: one turn is one memory, and a question is to
find the turns that its answer rests on."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any, cast

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
APART = "adversarial"
"""Asks about the wrong speaker on purpose: its evidence is what misleads, so no headline has it."""
DEPTH = 20
"""How many hits a system gives for a question."""
SESSIONS = 5
MEASURES = ("R@5", "R@10", "R@20", "MRR", "session_hit@5")

EXPECTED = """\
expected LoCoMo's rows: a JSON list of conversations, each an object with
  sample_id     text
  conversation  {speaker_a, speaker_b, session_1: [{speaker, dia_id, text, blip_caption?}, ...],
                 session_1_date_time: "1:56 pm on 8 May, 2023", session_2: ...}
  qa            [{question, evidence: ["D1:3", ...], category: 1 to 5}, ...]"""

type TurnId = tuple[int, int]
"""Session and place in it: "D1:3" is (1, 3)."""


class UnknownShape(Exception):
    """The file holds something else than LoCoMo's rows."""


@dataclass(frozen=True)
class Turn:
    """What one speaker said, with the caption of the image that went with it."""

    turn_id: TurnId
    session: str
    spoken: str
    """When its session was, in the data's own words."""
    said_at: datetime
    speaker: str
    text: str

    @property
    def key(self) -> str:
        """The turn's id as the data writes it."""
        return f"D{self.turn_id[0]}:{self.turn_id[1]}"


@dataclass(frozen=True)
class Question:
    """A question and the turns that answer it; those that no turn answers are not asked."""

    text: str
    category: str
    evidence: frozenset[TurnId]


@dataclass(frozen=True)
class Conversation:
    """Two people over months: an index, and a tenant, of its own."""

    name: str
    speakers: tuple[str, str]
    turns: Sequence[Turn]
    questions: Sequence[Question]


def load(path: Path) -> list[Conversation]:
    """The conversations of a file. Raises UnknownShape saying what was expected and found."""
    try:
        rows = json.loads(path.read_bytes())
    except ValueError as error:
        raise UnknownShape(f"{path}: not one JSON document ({error}); {EXPECTED}") from None
    if not isinstance(rows, list) or not rows:
        raise UnknownShape(f"{path}: {_text_of(rows)}; {EXPECTED}")
    result = cast("list[Any]", rows)
    try:
        return [_conversation(row) for row in result]
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnknownShape(f"{path}: {_text_of(result[0])} ({reason}); {EXPECTED}") from error


def _text_of(value: Any) -> str:
    """What stands where a conversation is expected, in words; another data set by its name."""
    if not isinstance(value, dict):
        return f"found {'nothing' if value == [] else f'a {type(value).__name__}'}"
    names = sorted(cast("dict[str, Any]", value))
    if "haystack_sessions" in names:
        return "this is LongMemEval, which nothing here reads yet"
    return f"found an object with {', '.join(names[:8])}"


def _conversation(row: Mapping[str, Any]) -> Conversation:
    talk: Mapping[str, Any] = row["conversation"]
    turns = list(_turns(talk))
    known_ids = {turn.turn_id for turn in turns}
    questions = [_question(request, known_ids) for request in row["qa"]]
    return Conversation(
        str(row["sample_id"]),
        (talk["speaker_a"], talk["speaker_b"]),
        turns,
        [question for question in questions if question.evidence],
    )


def _turns(talk: Mapping[str, Any]) -> Iterator[Turn]:
    numbers = sorted(int(name[8:]) for name in talk if re.fullmatch(r"session_\d+", name))
    for session in (f"session_{number}" for number in numbers):
        spoken: str = talk[f"{session}_date_time"]
        start = datetime.strptime(spoken, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for place, turn in enumerate(talk[session]):
            (turn_id,) = _ids(turn["dia_id"])
            caption: str | None = turn.get("blip_caption")
            text = turn["text"] + (f" [image: {caption}]" if caption else "")
            said_at = start + timedelta(seconds=place)
            yield Turn(turn_id, session, spoken, said_at, turn["speaker"], text)


def _question(query: Mapping[str, Any], known_ids: set[TurnId]) -> Question:
    names = {turn_id for words in query.get("evidence", ()) for turn_id in _ids(words)}
    return Question(query["question"], CATEGORIES[query["category"]], frozenset(names & known_ids))


def _ids(words: str) -> list[TurnId]:
    """The turns that a piece of evidence names: now and then several, and not all of them exist."""
    return [(int(session), int(place)) for session, place in re.findall(r"D:?(\d+):(\d+)", words)]


# scoring -----------------------------------------------------------------------------------------

type Scores = dict[str, float]


def score(evidence: frozenset[TurnId], ranking: Sequence[TurnId]) -> Scores:
    """One question's scores: the share of its evidence in the first 5, 10 and 20 hits; one over
    the rank of the first that is evidence; whether the first 5 sessions, each ranked by its best
    turn, hold one with evidence."""
    results: Scores = {
        f"R@{depth}": len(evidence & set(ranking[:depth])) / len(evidence) for depth in (5, 10, 20)
    }
    first = next((place for place, turn in enumerate(ranking, 1) if turn in evidence), None)
    results["MRR"] = 1 / first if first else 0.0
    sessions = list(dict.fromkeys(session for session, _ in ranking))[:SESSIONS]
    results["session_hit@5"] = float(any(session in sessions for session, _ in evidence))
    return results


def summary(questions: Sequence[tuple[Question, Scores]]) -> dict[str, Any]:
    """Averages over questions: the headline without the adversarial ones, and each category."""
    by_category = {
        category: _average(
            [scores for question, scores in questions if question.category == category]
        )
        for category in CATEGORIES.values()
    }
    headline = [scores for question, scores in questions if question.category != APART]
    return {**_average(headline), "by_category": by_category}


def _average(scores: Sequence[Scores]) -> dict[str, float]:
    means = {name: round(fmean(s[name] for s in scores), 4) if scores else 0.0 for name in MEASURES}
    return {**means, "questions": len(scores)}
