"""Corpora with questions that recall is measured on, all in one shape.

- `talks`: the sets in tests/bench/recall_sets, conversations of people with an agent, with
  questions of six kinds. Each was written by somebody who did not know how recall ranks.
- `demo`: events/demo.
- `unseen` and `corpus`: the conversations of tests/bench/corpus, with questions in words that are
  not those of the events.
- `locomo`: LoCoMo's questions of categories 1-4, where its file is given.
- further sets of a folder, such as `coder`: those whose names differ by a number alone are one
  group.
- `research`, `ops`, `family`, `tongues`: the sets in tests/bench/later_sets, where that is the
  folder of further sets.
- `beam`: BEAM's first ten conversations, where its folder is given (beam.py).

A set is `{"name", "events": [{"id", "session", "speaker", "role", "participants", "at", "text"}],
"questions": [{"q", "kind", "evidence": [ids], "asked_at"}]}`; a question of kind `none` has no
evidence: nothing answers it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bench import conversations, locomo, talks

SETS = Path(__file__).parent / "recall_sets"
LATER_SETS = Path(__file__).parent / "later_sets"
"""Logs written when the ranking was done. Nothing is fitted to them: that would take them away."""
NONE = "none"
"""The kind of a question that nothing answers."""


@dataclass(frozen=True)
class Question:
    """A question, and the keys of the events that answer it."""

    text: str
    kind: str
    evidence: frozenset[str]
    participants: Sequence[str]
    asked_at: str | None = None


@dataclass(frozen=True)
class Corpus:
    """Events as the API takes them, and questions about them."""

    name: str
    group: str
    events: Sequence[Mapping[str, Any]]
    questions: Sequence[Question]


def load(locomo_file: Path | None, more_sets: Path | None = None) -> list[Corpus]:
    """Every corpus that ships, LoCoMo's with its file, and further sets with their folder; of these
    the ones that do not ship as well. Raises OSError, KeyError and locomo.UnknownShape."""
    corpora = [read_set(path, "talks") for path in sorted(SETS.glob("*.json"))]
    shipped = {corpus.events[0]["content"] for corpus in corpora}
    for path in sorted(more_sets.glob("*.json")) if more_sets else ():
        corpus = read_set(path, path.stem.rstrip("0123456789_-"))
        if corpus.events[0]["content"] not in shipped:
            corpora.append(corpus)
    corpora.append(_from_conversation(conversations.read(talks.DEMO), "demo"))
    for paths, group in ((talks.UNSEEN_SET, "unseen"), (talks.LEARNING_SET, "corpus")):
        labels = map(conversations.read, paths)
        corpora += [_from_conversation(talk, group) for talk in labels if talk.questions]
    if locomo_file is not None:
        corpora += map(_from_locomo, locomo.load(locomo_file))
    return corpora


def moment(text: str) -> datetime:
    """A time as the sets write it."""
    return datetime.fromisoformat(text)


def read_set(path: Path, group: str) -> Corpus:
    """A set's file. Raises OSError, ValueError and KeyError."""
    talk = json.loads(path.read_bytes())
    events = [
        {
            "source_event_key": event["id"],
            "session_id": event["session"],
            "participants": event["participants"],
            "role": event["role"],
            "speaker": event["speaker"],
            "content": event["text"],
            "occurred_at": event["at"],
            **({"type": event["type"]} if "type" in event else {}),
        }
        for event in talk["events"]
    ]
    who = {event["id"]: set[str](event["participants"]) for event in talk["events"]}
    questions = [
        Question(
            question["q"],
            question["kind"],
            frozenset(question["evidence"]),
            _common(who[key] for key in question["evidence"] or who),
            question["asked_at"],
        )
        for question in talk["questions"]
    ]
    return Corpus(path.stem.replace("_", "-"), group, events, questions)


def _common(sets: Iterable[set[str]]) -> list[str]:
    """Who takes part in all of them; where nobody does, in most of them."""
    members = list(sets)
    common = members[0].intersection(*members)
    everybody = sorted(members[0].union(*members))
    return sorted(common) or [max(everybody, key=lambda name: sum(name in m for m in members))]


def _from_conversation(talk: conversations.Conversation, group: str) -> Corpus:
    questions = [
        Question(
            row["question"],
            "hidden" if row.get("hidden") else group,
            frozenset(row["expected"]),
            row["participants"],
        )
        for row in talk.questions
    ]
    events = [{name: row[name] for name in row if name != "cites"} for row in talk.events]
    return Corpus(talk.name, group, events, [q for q in questions if q.evidence])


def _from_locomo(talk: locomo.Conversation) -> Corpus:
    people = sorted(f"user:{name}" for name in talk.speakers)
    keys = {turn.turn_id: turn.key for turn in talk.turns}
    events = [
        {
            "source_event_key": turn.key,
            "session_id": turn.session,
            "participants": people,
            "role": "user",
            "speaker": f"user:{turn.speaker}",
            "content": turn.text,
            "occurred_at": turn.said_at.isoformat(),
        }
        for turn in talk.turns
    ]
    last = talk.turns[-1].said_at.isoformat()
    questions = [
        Question(q.text, q.category, frozenset(keys[t] for t in q.evidence), people, last)
        for q in talk.questions
        if q.category != locomo.APART
    ]
    return Corpus(talk.name.lower(), "locomo", events, questions)
