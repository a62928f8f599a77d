"""Conversations whose topics people have marked, one file each: read, and written from a folder.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.conversations FOLDER > NAME.jsonl

A folder is what docs/annotation.md asks for, such as events/demo. A file holds the same as JSON
lines in order of time:

- `{"session": "abroad-s1", "date": "2028-04-27", "participants": ["agent:kestrel", "user:tobias"]}`
  where a session begins; `{"date": "2028-04-28"}` alone where a day begins in it;
- `{"topic": "removal quotations", "entities": {"PD/2291": "other"}}` where a topic begins; without
  `entities` where nobody marked the names;
- `{"at": "19:52:10", "speaker": "user:tobias", "text": "Good evening."}` for each event. Its key is
  NAME-0001 by its number, its channel NAME, its type `message`, and its role the speaker's first
  part, or `system` without a speaker. What differs, and further fields, stand behind the text;
- questions, as docs/annotation.md has them, at the end.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.scores import Expected

type Row = dict[str, Any]


class Topic(NamedTuple):
    """What some events of a session are about."""

    first: str
    """The key of its first event."""
    session: str
    title: str
    entities: Mapping[str, str] | None
    """Kinds by names; None where nobody marked the names."""


@dataclass(frozen=True)
class Conversation:
    """A conversation as it was marked."""

    name: str
    events: Sequence[Row]
    """As the API takes them."""
    topics: Sequence[Topic]
    questions: Sequence[Row]

    @property
    def expected(self) -> Expected:
        """What its chains should look like."""
        lanes: dict[str, list[str]] = defaultdict(list)
        for event in self.events:
            lanes[event["session_id"]].append(event["source_event_key"])
        names = {
            one.first: frozenset(one.entities) for one in self.topics if one.entities is not None
        }
        return Expected(lanes, frozenset(one.first for one in self.topics), names)


def read(path: Path) -> Conversation:
    """A conversation's file or folder. Raises OSError where one is missing, ValueError and KeyError
    for what is not of this form."""
    return _from_folder(path) if path.is_dir() else _from_file(path)


def _from_file(path: Path) -> Conversation:
    events: list[Row] = []
    topics: list[Topic] = []
    questions: list[Row] = []
    session: Row = {}
    topic: Row = {}
    for record in _rows(path):
        if "question" in record:
            questions.append(record)
        elif "topic" in record:
            topic = record
        elif "at" not in record:
            session |= record
        else:
            key = f"{path.stem}-{len(events) + 1:04d}"
            if topic:
                topics.append(Topic(key, session["session"], topic["topic"], topic.get("entities")))
                topic = {}
            events.append(
                {"source_event_key": key, "channel": path.stem, **_event(session, record)}
            )
    return Conversation(path.stem, events, topics, questions)


def _event(session: Row, record: Row) -> Row:
    return {
        "session_id": session["session"],
        "participants": session["participants"],
        "role": _role(record),
        "type": "message",
        "content": record.pop("text"),
        "occurred_at": f"{session['date']}T{record.pop('at')}Z",
        **record,
    }


def _role(record: Row) -> str:
    return record["speaker"].partition(":")[0] if "speaker" in record else "system"


def _from_folder(folder: Path) -> Conversation:
    entities = {
        row["first"]: {entity["name"]: entity["kind"] for entity in row["entities"]}
        for row in _rows_if_any(folder / "expected_entities.jsonl")
    }
    topics = [
        Topic(row["first"], row["session"], row["topic"], entities.get(row["first"]))
        for row in _rows(folder / "topics.jsonl")
    ]
    questions = _rows_if_any(folder / "questions.jsonl")
    return Conversation(folder.name, list(_folder_events(folder)), topics, questions)


def _folder_events(folder: Path) -> Iterator[Row]:
    """The events with their large payloads, and the keys they cite in `cites`."""
    for event in _rows(folder / "conversation.jsonl"):
        if file := event.pop("content_file", None):
            event["content"] = (folder / file).read_text(encoding="utf-8")
        yield event


def _rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _rows_if_any(path: Path) -> list[Row]:
    return _rows(path) if path.exists() else []


def file_lines(conversation: Conversation) -> Iterator[str]:
    """The lines of its file."""
    for record in _records(conversation):
        yield json.dumps(record, ensure_ascii=False)


def _records(conversation: Conversation) -> Iterator[Row]:
    topics = {topic.first: topic for topic in conversation.topics}
    before: Row = {}
    for event in conversation.events:
        date, at = event["occurred_at"].removesuffix("Z").split("T")
        session = {
            "session": event["session_id"],
            "date": date,
            "participants": event["participants"],
        }
        if session["session"] != before.get("session"):
            yield session
        elif session != before:
            yield {"date": date}
        before = session
        if topic := topics.get(event["source_event_key"]):
            labels = {} if topic.entities is None else {"entities": topic.entities}
            yield {"topic": topic.title, **labels}
        yield _record(event, at)
    yield from conversation.questions


_SHARED = ("source_event_key", "session_id", "channel", "participants", "content", "occurred_at")


def _record(event: Row, at: str) -> Row:
    speaker = {"speaker": event["speaker"]} if "speaker" in event else {}
    rest = {key: value for key, value in event.items() if key not in (*_SHARED, "speaker")}
    usual = {"role": _role(event), "type": "message"}
    differing = {key: value for key, value in rest.items() if usual.get(key) != value}
    return {"at": at, **speaker, "text": event["content"], **differing}


def main() -> None:
    """Print a folder's conversation as its file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.conversations")
    parser.add_argument("folder", type=Path)
    for line in file_lines(_from_folder(parser.parse_args().folder)):
        print(line)


if __name__ == "__main__":
    main()
