"""The names that recall reads of a question."""

from datetime import date

import pytest

from strandline.recall.question_mentions import parse_names_and_dates

TODAY = date(2026, 6, 10)


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("What did ALICE tell bob?", {"alice"}),
        ("How is the keel, and will it rain?", set[str]()),
        ("Will it rain? Keel is new.", set[str]()),
        ("What did Will say of the keel?", {"will"}),
        ("Will's boat, or Keel’s?", {"will", "keel"}),  # noqa: RUF001
        ("what did agent:keel say?", set[str]()),
        ("WHEN WILL IT RAIN?", set[str]()),
        ("田中 は何と言った？", {"田中"}),  # noqa: RUF001
        ("What of 12 boats?", set[str]()),
    ],
)
def test_question_mentions_name_as_whole_word(question: str, names: set[str]) -> None:
    request = parse_names_and_dates(question, TODAY)
    people = ("alice", "bo", "bob", "will", "keel", "田中", "12", "rain")
    assert {name for name in people if request.mentions_speaker(f"user:{name}")} == names


def test_question_mentions_name_with_kind_as_one_participant() -> None:
    request = parse_names_and_dates("What did user:sam say of agent:Jo.B-2?", TODAY)
    mentioned = ["user:sam", "agent:sam", "agent:Jo.B-2", "user:Jo.B-2"]
    assert [request.mentions_speaker(one) for one in mentioned] == [True, False, True, False]
    assert parse_names_and_dates("What did Sam say?", TODAY).mentions_speaker("agent:sam")
