"""BEAM's conversations: a user and an assistant over months, whose messages are long.

From github.com/mohammadtavakoli78/BEAM. The data is not shipped, because its licence is not stated.
A conversation is a folder `chats/100K/<number>` with `chat.json` and
`probing_questions/probing_questions.json`. Only talks 1 to 10 are read: the others for those who
judges what was fitted to these.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from tests.bench.recall_corpora import NONE, Corpus, Question

TALKS = range(1, 11)
_ABSTENTION = "abstention"
"""BEAM's name for questions that nothing answers."""
_MARKER = re.compile(r"\s*->->\s*[\d, ]+$")
"""What the generator of the data left at the end of a user's message."""
_PEOPLE = ("agent:assistant", "user:speaker")


def load(folder: Path) -> list[Corpus]:
    """The talks of a clone, or of a folder with `chats/100K`. Raises OSError, KeyError and
    ValueError."""
    return [_read(folder / "chats" / "100K" / str(number)) for number in TALKS]


def _read(folder: Path) -> Corpus:
    events = list(_events(json.loads((folder / "chat.json").read_bytes())))
    asked_at = datetime.fromisoformat(events[-1]["occurred_at"]) + timedelta(days=1)
    keys = {event["source_event_key"] for event in events}
    rows = json.loads((folder / "probing_questions" / "probing_questions.json").read_bytes())
    questions = [
        _question(kind, row, keys, asked_at.isoformat())
        for kind, members in rows.items()
        for row in members
    ]
    known = [q for q in questions if q.evidence or q.kind == NONE]
    return Corpus(f"beam-{folder.name}", "beam", events, known)


def _events(batches: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A session for each batch, a minute from message to message, from the day that the batch
    names."""
    for batch in batches:
        messages = [message for turn in batch["turns"] for message in turn]
        day = next(m["time_anchor"] for m in messages if m.get("time_anchor"))
        start = datetime.strptime(day, "%B-%d-%Y").replace(hour=9, tzinfo=UTC)
        for place, message in enumerate(messages):
            is_user = message["role"] == "user"
            yield {
                "source_event_key": f"m{message['id']}",
                "session_id": f"batch-{batch['batch_number']}",
                "participants": list(_PEOPLE),
                "role": "user" if is_user else "agent",
                "speaker": _PEOPLE[is_user],
                "content": _MARKER.sub("", message["content"]) or message["content"],
                "occurred_at": (start + timedelta(minutes=place)).isoformat(),
            }


def _question(kind: str, row: dict[str, Any], keys: set[str], asked_at: str) -> Question:
    evidence = {f"m{number}" for number in _numbers(row.get("source_chat_ids", []))}
    return Question(
        row["question"],
        NONE if kind == _ABSTENTION else kind,
        frozenset(evidence & keys),
        list(_PEOPLE),
        asked_at,
    )


def _numbers(value: Any) -> Iterator[int]:
    """Those of messages, however deep they lie."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict):
        yield from _numbers(list(cast("dict[str, Any]", value).values()))
    else:
        for member in cast("list[Any]", value):
            yield from _numbers(member)
