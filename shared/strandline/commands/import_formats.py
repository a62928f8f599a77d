"""Files of conversations, read as events: JSON Lines, exports of ChatGPT and of Claude, LoCoMo.

Each event gets a key that follows from the file's own ids, so that a file that is imported again,
as after an interruption, is stored once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

CHANNEL = "import"
type Event = dict[str, Any]
type Json = Mapping[str, Any]


class UnreadableFile(Exception):
    """The file is not in a format that can be imported; the message says where it is not."""


@dataclass(frozen=True)
class DefaultParticipants:
    """Who takes part where a file does not say."""

    user: str = "user"
    agent: str = "assistant"

    @property
    def participants(self) -> list[str]:
        """Both."""
        return [f"user:{self.user}", f"agent:{self.agent}"]


def read_events(path: Path, people: DefaultParticipants) -> Iterator[Event]:
    """The events of a file, in order. Raises UnreadableFile."""
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        yield from _read_lines(path)
        return
    try:
        document: Any = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path}: not JSON ({error}). JSON Lines end in .jsonl.") from None
    entries = cast("list[Any]", document if isinstance(document, list) else [document])
    for number, entry in enumerate(entries):
        reader = _choose_reader(entry)
        if reader is None:
            raise UnreadableFile(
                f"{path}: entry {number} is no conversation of ChatGPT, Claude or LoCoMo"
            )
        try:
            yield from reader(entry, people)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableFile(
                f"{path}: entry {number} cannot be read ({type(error).__name__}: {error})"
            ) from None


def _choose_reader(entry: Any) -> Callable[[Json, DefaultParticipants], Iterator[Event]] | None:
    if not isinstance(entry, dict):
        return None
    for member, reader in (
        ("mapping", _read_chatgpt),
        ("chat_messages", _read_claude),
        ("conversation", _read_locomo),
    ):
        if member in entry:
            return reader
    return None


def _read_lines(path: Path) -> Iterator[Event]:
    """An event a line, as `strandline export` writes and POST /api/v1/events takes it. Without a
    key of its own a line gets one by its place."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                event: Any = json.loads(line)
            except ValueError as error:
                raise UnreadableFile(f"{path}: line {number} is not JSON ({error})") from None
            if not isinstance(event, dict):
                raise UnreadableFile(f"{path}: line {number} is no object")
            key = {"channel": CHANNEL, "source_event_key": f"{path.name}:{number}"}
            has_key = "source_event_key" in event
            yield cast("Event", event) if has_key else {**cast("Event", event), **key}


def _event(
    source: str, conversation: str, message: str, people: DefaultParticipants, **fields: Any
) -> Event:
    return {
        "participants": people.participants,
        "channel": CHANNEL,
        "source_event_key": f"{source}:{conversation}:{message}",
        "session_id": f"{source}-{conversation}"[:128],
        **fields,
    }


def _read_chatgpt(conversation: Json, people: DefaultParticipants) -> Iterator[Event]:
    """A conversation of ChatGPT's conversations.json: a tree, of which the branch is taken that the
    person saw last."""
    mapping: Json = conversation["mapping"]
    identity = conversation.get("conversation_id") or conversation["id"]
    branch: list[Json] = []
    node_id = conversation.get("current_node") or _newest_leaf(mapping)
    while node_id is not None:
        branch.append(mapping[node_id])
        node_id = mapping[node_id].get("parent")
    for node in reversed(branch):
        message: Json | None = node.get("message")
        if message is None:
            continue
        content: Json = message.get("content") or {}
        parts: list[Any] = content.get("parts") or []
        text = "\n".join(part for part in parts if isinstance(part, str)).strip()
        role = message["author"]["role"]
        if not text or role == "system":
            continue
        fields: Event = {"role": "user" if role == "user" else "agent", "content": text}
        if role == "tool":
            fields["type"] = "observation"
        if message.get("create_time") is not None:
            moment = datetime.fromtimestamp(message["create_time"], UTC)
            fields["occurred_at"] = moment.isoformat()
        yield _event("chatgpt", identity, message["id"], people, **fields)


def _newest_leaf(mapping: Json) -> str | None:
    leaves = [name for name, node in mapping.items() if not node.get("children")]

    def written_at(name: str) -> float:
        message: Json = mapping[name].get("message") or {}
        return message.get("create_time") or 0

    return max(leaves, key=written_at, default=None)


def _read_claude(conversation: Json, people: DefaultParticipants) -> Iterator[Event]:
    """A conversation of Claude's conversations.json."""
    for message in conversation["chat_messages"]:
        text = (message.get("text") or "").strip() or _claude_text(message.get("content") or [])
        if not text:
            continue
        yield _event(
            "claude",
            conversation["uuid"],
            message["uuid"],
            people,
            role="user" if message["sender"] == "human" else "agent",
            content=text,
            occurred_at=message["created_at"],
        )


def _claude_text(content: list[Any]) -> str:
    return "\n".join(part["text"] for part in content if part.get("type") == "text").strip()


def _read_locomo(sample: Json, people: DefaultParticipants) -> Iterator[Event]:
    """A sample in LoCoMo's shape: two people, sessions with a date, turns in order."""
    del people  # the sample names its own
    conversation: Json = sample["conversation"]
    names = [conversation["speaker_a"], conversation["speaker_b"]]
    identity = str(sample.get("sample_id", "-".join(names)))
    numbers = sorted(
        int(match[1]) for name in conversation if (match := re.fullmatch(r"session_(\d+)", name))
    )
    for number in numbers:
        moment = parse_locomo_time(conversation[f"session_{number}_date_time"])
        for place, turn in enumerate(conversation[f"session_{number}"]):
            yield {
                "participants": [f"user:{name}" for name in names],
                "speaker": f"user:{turn['speaker']}",
                "role": "user",
                "content": turn["text"],
                "channel": CHANNEL,
                "source_event_key": f"locomo:{identity}:{turn.get('dia_id', f'{number}:{place}')}",
                "session_id": f"locomo-{identity}-{number}"[:128],
                "occurred_at": moment.isoformat(),
            }


def parse_locomo_time(text: str) -> datetime:
    """`1:56 pm on 8 May, 2023`, as UTC. Raises ValueError."""
    return datetime.strptime(text.strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
