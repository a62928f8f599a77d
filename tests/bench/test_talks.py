"""That the marked conversations hold together as docs/annotation.md asks."""

from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest

from strandline.llm.types import EntityKind
from tests.bench import conversations, talks

MARKED = (*talks.FITTING_SET, *talks.UNSEEN_SET)
FILES = [path for path in MARKED if path.is_file()]


def of(paths: list[Path] | tuple[Path, ...]) -> pytest.MarkDecorator:
    """A test for each of them."""
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def test_talks_are_complete() -> None:
    assert (len(talks.FITTING_SET), len(talks.UNSEEN_SET)) == (50, 5)
    assert len({path.stem for path in MARKED}) == 55


@of(MARKED)
def test_talks_topics_begin_in_their_sessions(path: Path) -> None:
    content = conversations.read(path)
    session = {event["source_event_key"]: event["session_id"] for event in content.events}
    assert len(session) == len(content.events)
    assert [session[topic.first] for topic in content.topics] == [
        one.session for one in content.topics
    ]
    places = [list(session).index(topic.first) for topic in content.topics]
    assert places == sorted(set(places))
    firsts = {one: key for key, one in reversed(session.items())}
    assert set(firsts.values()) <= {topic.first for topic in content.topics}


@of(MARKED)
def test_talks_events_have_session_members_in_time_order(path: Path) -> None:
    events = conversations.read(path).events
    people: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for event in events:
        people[event["session_id"]].add(tuple(event["participants"]))
        speaker = event.get("speaker")
        assert speaker in (*event["participants"], None)
        assert event["role"] == (speaker.split(":")[0] if speaker else "system")
    assert {len(one) for one in people.values()} == {1}
    times = [event["occurred_at"] for event in events]
    assert times == sorted(times)


@of(MARKED)
def test_talks_names_are_marked_in_all_topics_or_none(path: Path) -> None:
    labels = [topic.entities for topic in conversations.read(path).topics]
    known_ids = [entities for entities in labels if entities is not None]
    assert len(known_ids) in (0, len(labels))
    kinds = {kind for entities in known_ids for kind in entities.values()}
    assert kinds <= set(get_args(EntityKind.__value__))


@of(FILES)
def test_talks_names_stand_in_their_topics(path: Path) -> None:
    """The demo's logs and tables are files of their own, and are left out."""
    talk = talks.read(path)
    text: dict[str, str] = {}
    for keys in talk.expected.lanes.values():
        topic = keys[0]
        event_prompts = {event.key: event.prompt for event in talk.events}
        for key in keys:
            topic = key if key in talk.expected.starts else topic
            prompt = event_prompts[key]
            lines = f"{text.get(topic, '')}\n{prompt.speaker or ''} {prompt.text}"
            text[topic] = lines.lower()
    missing = [
        (topic, name)
        for topic, names in talk.expected.names.items()
        for name in names
        if name.lower() not in text[topic]
    ]
    assert missing == []


@of(MARKED)
def test_talks_questions_name_existing_events(path: Path) -> None:
    content = conversations.read(path)
    people = {event["source_event_key"]: set(event["participants"]) for event in content.events}
    for question in content.questions:
        assert all(set(question["participants"]) <= people[key] for key in question["expected"])
        assert all(key in people for key in question.get("hidden", []))


@of(FILES)
def test_talks_files_have_one_form(path: Path) -> None:
    lines = list(conversations.file_lines(conversations.read(path)))
    assert path.read_text() == "\n".join(lines) + "\n"


def test_talks_file_equals_folder(tmp_path: Path) -> None:
    demo = conversations.read(talks.DEMO)
    file = tmp_path / "demo.jsonl"
    prose = [event | {"content": event.get("content", event.get("name"))} for event in demo.events]
    whole = conversations.Conversation("demo", prose, demo.topics, demo.questions)
    file.write_text("\n".join(conversations.file_lines(whole)) + "\n")
    assert conversations.read(file) == whole
