"""Which events stand in a context because they are beside one that answers."""

import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.context import event_arrangement
from strandline.context.event_arrangement import add_neighbours

ASKS = "Shall we paint the hull in spring?"
LONG = f"{'We spoke of the hull. ' * 30}{ASKS}"


def list_shown(text: str, around: int) -> list[int]:
    """The numbers of the events that are shown for the second of four, which has this text."""
    event = SimpleNamespace(event_id=uuid.UUID(int=2), content=text)
    neighbours = [
        SimpleNamespace(
            event_id=uuid.UUID(int=n),
            content=said,
            of_id=event.event_id,
            place=n - 2,
            says_nothing=False,
        )
        for n, said in ((1, "Is it dry?"), (3, "Yes, it is."))
    ]
    ids = add_neighbours(
        [event.event_id], cast("Any", {event.event_id: event}), cast("Any", neighbours), around
    )
    return [event_id.int for event_id in ids]


def test_event_arrangement_shows_long_event_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list_shown(LONG, 0) == [2]
    assert list_shown(ASKS, 0) == [2, 1, 3]
    monkeypatch.setattr(event_arrangement, "_LONG_CHARS", len(LONG))
    assert list_shown(LONG, 0) == [2, 3], "the planted fault"


def test_event_arrangement_shows_neighbours_of_best_event() -> None:
    """What came of a log stands after it."""
    assert list_shown(LONG, 1) == [2, 1, 3]


def test_event_arrangement_shows_question_before_short_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A longer one says what it is about."""
    reply = "In spring, if it stays dry and Tomas has the time."
    assert list_shown(reply, 0)[:2] == [2, 1]
    assert list_shown(f"{reply} {reply} {reply}", 0) == [2, 3]
    monkeypatch.setattr(event_arrangement, "_REPLY_CHARS", 40)
    assert list_shown(reply, 0) == [2, 3], "the planted fault"
