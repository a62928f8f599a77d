"""Echoes: what counts as a repetition of what was given."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from strandline.chains import recall_echoes
from strandline.chains.recall_echoes import (
    ECHO_WINDOW,
    EventText,
    RecalledText,
    decide_which_events_are_echoes,
    hash_word_trigrams,
)

NOW = datetime(2026, 5, 8, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TEXT = "The red buoy at pier seven needs a new lamp before winter."
EVENT_TEXT = EventText(uuid.uuid4(), 7, "*", NOW, TEXT)
RECALLED_TEXT = RecalledText(uuid.uuid4(), "*", [NOW - SECOND], TEXT)


def test_recall_echo_repeats_recalled_text() -> None:
    (decision,) = decide_which_events_are_echoes([EVENT_TEXT], [RECALLED_TEXT]).values()
    assert (decision.event_id, decision.kind, decision.at_seq) == (EVENT_TEXT.event_id, "echo", 7)
    assert decision.body == {"share": 1.0}


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("THE RED BUOY, at pier seven - needs a new lamp; before winter!", 1.0),
        (f"You told me: {TEXT} Shall I order one?", 0.5882),
        ("\uff34he red buoy at pier seven", 1.0),
        # three of six triples: no more than half
        ("the red buoy at pier nine is green", None),
        ("lamp new a needs seven pier at buoy red the", None),
        ("I am allergic to peanuts, and have been since school.", None),
        ("red buoy at pier seven", None),  # three triples
        ("the red", None),
        ("", None),
    ],
)
def test_recall_echo_shares_more_than_half_of_trigrams(text: str, share: float | None) -> None:
    result = decide_which_events_are_echoes([replace(EVENT_TEXT, text=text)], [RECALLED_TEXT])
    assert [decision.body["share"] for decision in result.values()] == [share] * (share is not None)


def test_recall_echo_may_combine_several_answers() -> None:
    halves = [
        replace(RECALLED_TEXT, text="The red buoy at pier seven"),
        replace(RECALLED_TEXT, text="pier seven needs a new lamp before winter"),
    ]
    assert decide_which_events_are_echoes([EVENT_TEXT], halves)
    assert not decide_which_events_are_echoes([EVENT_TEXT], halves[:1])


@pytest.mark.parametrize(
    ("at", "is_echo"),
    [
        (NOW + SECOND, False),
        (NOW, True),
        (NOW - ECHO_WINDOW + SECOND, True),
        (NOW - ECHO_WINDOW, False),
        (NOW - ECHO_WINDOW - SECOND, False),
    ],
)
def test_recall_echo_window_is_one_day(at: datetime, is_echo: bool) -> None:
    longer_ago = NOW - timedelta(days=9)
    copy = replace(RECALLED_TEXT, times=[longer_ago, at])
    assert bool(decide_which_events_are_echoes([EVENT_TEXT], [copy])) is is_echo


@pytest.mark.parametrize(
    ("asked_by", "said_by", "is_echo"),
    [
        ("*", "*", True),
        ("*", "user:alice", True),
        ("user:alice", "*", True),
        ("user:alice", "user:alice", True),
        ("user:bob", "user:alice", False),
    ],
)
def test_recall_echo_ignores_answers_to_other_user(
    asked_by: str, said_by: str, is_echo: bool
) -> None:
    result = decide_which_events_are_echoes(
        [replace(EVENT_TEXT, writer=said_by)], [replace(RECALLED_TEXT, writer=asked_by)]
    )
    assert bool(result) is is_echo


def test_recall_echo_is_never_of_same_event() -> None:
    assert not decide_which_events_are_echoes(
        [EVENT_TEXT], [replace(RECALLED_TEXT, event_id=EVENT_TEXT.event_id)]
    )


def test_recall_echo_trigrams_of_words_count_once() -> None:
    assert len(hash_word_trigrams("a b c d")) == 2
    assert len(hash_word_trigrams("a b c a b c a b c")) == 3
    assert (
        hash_word_trigrams("Größe, élan vital") == hash_word_trigrams("GRÖSSE ÉLAN VITAL") != set()
    )
    assert not decide_which_events_are_echoes(
        [replace(EVENT_TEXT, text="a b c " * 9)], [replace(RECALLED_TEXT, text="a b c " * 9)]
    )


@pytest.mark.parametrize(
    ("name", "value", "test"),
    [
        ("MIN_SHARE", 0.4, ("the red buoy at pier nine is green", None)),
        ("MIN_TRIPLES", 1, ("red buoy at pier seven", None)),
    ],
)
def test_recall_echo_wider_rule_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, value: float, test: tuple[str, float | None]
) -> None:
    """Planted."""
    monkeypatch.setattr(recall_echoes, name, value)
    with pytest.raises(AssertionError):
        test_recall_echo_shares_more_than_half_of_trigrams(*test)
