"""That the marked conversations hold together as docs/annotation.md asks."""

import json
from pathlib import Path

import pytest

from tests.bench import talks

WRITTEN = [path for path in (*talks.FITTED, *talks.UNSEEN) if path.is_dir()]


def rows(path: Path) -> list[dict[str, object]]:
    """A file's lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_topics_begin_at_events_of_their_sessions(path: Path) -> None:
    session = {e["source_event_key"]: e["session_id"] for e in rows(path / "conversation.jsonl")}
    topics = [(row["first"], row["session"]) for row in rows(path / "topics.jsonl")]
    if path not in talks.UNNAMED:
        named = [(row["first"], row["session"]) for row in rows(path / "expected_entities.jsonl")]
        assert topics == named
    assert [session[first] for first, _ in topics] == [one for _, one in topics]
    firsts = {one: key for key, one in reversed(session.items())}
    assert set(firsts.values()) <= {first for first, _ in topics}


@pytest.mark.parametrize(
    "path", [one for one in WRITTEN if one != talks.DEMO], ids=lambda p: p.name
)
def test_names_stand_in_their_topics(path: Path) -> None:
    """The demo's logs and tables are files of their own, and are left out."""
    talk = talks.read(path)
    text: dict[str, str] = {}
    for keys in talk.expected.lanes.values():
        topic = keys[0]
        said = {event.key: event.said for event in talk.events}
        for key in keys:
            topic = key if key in talk.expected.starts else topic
            text[topic] = (
                f"{text.get(topic, '')}\n{said[key].speaker or ''} {said[key].text}".lower()
            )
    missing = [
        (topic, name)
        for topic, names in talk.expected.names.items()
        for name in names
        if name.lower() not in text[topic]
    ]
    assert missing == []
