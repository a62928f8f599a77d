"""What people say of their home, job, tools, plans and preferences, and what it ends."""

import itertools
import re

import pytest

from strandline.llm.heuristic.slot_forms import SPOKEN, find_form, find_required
from strandline.llm.heuristic.slots import (
    compare_slot_statements,
    judge_by_later_statements,
    read_slot_of_fact,
    read_slot_statements,
)

ENDS, DOUBTS = "ends", "doubts"


def _list_verbs(pattern: str) -> list[str]:
    """The words that a form in the first person may begin with, after its speaker and adverbs."""
    rest = pattern.partition(r"[Ww]e)")[2].removeprefix("(?: have|'ve)?").lstrip()
    rest = re.sub(r"^\(\?:\(\?:[^()]*\) \)\*", "", rest)  # adverbs
    group = re.match(r"\(\?:([^()]*)", rest)
    words = group[1].split("|") if group else [rest.split("(")[0].strip()]
    return [word.replace("?", "") for word in words]


def find_verdict(fact: str, message: str) -> str | None:
    """What a message of Jonas does to a fact."""
    earlier = read_slot_of_fact(fact)
    assert earlier is not None, fact
    result = judge_by_later_statements(earlier, read_slot_statements(message, "Jonas"))
    return result[0] if result else None


@pytest.mark.parametrize(
    ("fact", "message", "verdict"),
    [
        ("Jonas lives in Leipzig.", "We moved to Dresden at the weekend.", ENDS),
        ("Jonas lives in Bergen.", "We moved from Bergen to Oslo last week.", ENDS),
        ("Jonas lives in Leipzig.", "I live in Dresden now.", ENDS),
        ("Jonas lives in Leipzig.", "I no longer live in Leipzig.", ENDS),
        ("Jonas lives in Leipzig.", "I live in Dresden.", DOUBTS),
        ("Jonas lives in Leipzig.", "I moved to GitHub last week.", DOUBTS),
        ("Jonas lives in Leipzig.", "I moved to Kubernetes, the cluster runs.", DOUBTS),
        ("Jonas works at Nokia.", "I work for Ericsson now.", ENDS),
        ("Jonas works at Nokia.", "I left Nokia last month and joined Ericsson.", ENDS),
        ("Jonas works as a cook.", "I no longer work as a cook. I work as a baker now.", ENDS),
        ("Jonas works as a cook.", "I work for Ericsson now.", DOUBTS),
        ("Jonas uses CircleCI for tests.", "We switched from CircleCI to Buildkite.", ENDS),
        ("Jonas uses CircleCI for tests.", "We use Buildkite for our tests now.", ENDS),
        ("Jonas uses MySQL.", "Let's switch: Postgres 16 instead of MySQL.", ENDS),
        ("Jonas uses Vim.", "I've been using Helix for two months now.", DOUBTS),
        ("Jonas plans to go to Rome in May.", "The trip is off. Rome is cancelled.", ENDS),
        ("Jonas's concert is planned for 3 May.", "The concert was moved to 9 May.", ENDS),
        ("Jonas prefers window seats.", "From now on I prefer aisle seats.", ENDS),
        ("Jonas prefers dark mode.", "I like the light theme better now.", DOUBTS),
        ("Jonas loves coffee.", "I don't drink coffee any more.", DOUBTS),
        ("Jonas likes coffee.", "I no longer like coffee.", ENDS),
    ],
)
def test_slot_change_ends_or_doubts_fact(fact: str, message: str, verdict: str) -> None:
    assert find_verdict(fact, message) == verdict


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ("Jonas lives in Leipzig.", "My sister moved to Dresden."),
        ("Jonas lives in Leipzig.", "I'm in Dresden this week."),
        ("Jonas lives in Leipzig.", "If we moved to Dresden I'd miss the lake."),
        ("Jonas lives in Leipzig.", "We nearly moved to Dresden."),
        ("Jonas lives in Leipzig.", 'He said: "We moved to Dresden. We love it."'),
        ("Jonas lives in Leipzig.", "When I was six we moved to Dresden."),
        ("Jonas lives in Leipzig.", "We moved to Dresden for three months."),
        ("Jonas lives in Leipzig.", "We moved to Tuesdays."),
        ("Jonas lives in Leipzig.", "I moved to a desk by the window."),
        ("Jonas lives in Leipzig.", "Did I say that we moved to Dresden?"),
        ("Jonas lives in Leipzig.", "I no longer live in Turin."),
        ("Jonas lives in Leipzig.", "> We moved to Dresden.\nThat is from the film."),
        ("Jonas lives in Leipzig.", "Translate: we moved to Dresden."),
        ("Jonas works at Nokia.", "I left Nokia at five today."),
        ("Jonas works at Nokia.", "I no longer work at Ericsson."),
        ("Jonas uses CircleCI for tests.", "We use Notion for our notes now."),
        ("Jonas plans to go to Rome in May.", "The dentist cancelled my appointment."),
        ("Jonas plans to go to Rome in May.", "I'm planning to go to Oslo in June."),
        ("Jonas prefers window seats.", "I love hiking now."),
        ("Jonas prefers tea.", "I had coffee instead of my usual."),
    ],
)
def test_slot_lookalike_ends_nothing(fact: str, message: str) -> None:
    assert find_verdict(fact, message) is None


def test_slot_last_statement_wins() -> None:
    leipzig = read_slot_of_fact("Jonas lives in Leipzig.")
    assert leipzig is not None
    (moved,) = read_slot_statements("We moved to Dresden.", "Jonas")
    (back,) = read_slot_statements("We moved back to Leipzig.", "Jonas")
    assert judge_by_later_statements(leipzig, [moved]) == (ENDS, 0)
    assert judge_by_later_statements(leipzig, [back, moved]) == ("restates", 0)
    assert judge_by_later_statements(leipzig, [moved, back]) == (ENDS, 0)


def test_slot_move_to_tool_is_no_change_of_home() -> None:
    leipzig = read_slot_of_fact("Jonas lives in Leipzig.")
    assert leipzig is not None
    statements = read_slot_statements("I moved to Neovim.", "Jonas") + read_slot_statements(
        "I use Vim.", "Jonas"
    )
    assert judge_by_later_statements(leipzig, statements) == (DOUBTS, 0)
    (moved,) = read_slot_statements("We moved from Leipzig to Dresden.", "Jonas")
    assert judge_by_later_statements(leipzig, [moved, *statements]) == (ENDS, 0)


def test_slot_change_spares_other_people() -> None:
    mara = read_slot_of_fact("Mara lives in Leipzig.")
    assert mara is not None
    assert (
        judge_by_later_statements(mara, read_slot_statements("We moved to Dresden.", "Jonas"))
        is None
    )
    (own,) = read_slot_statements("We moved to Dresden.", "Mara")
    assert compare_slot_statements(mara, own) == ENDS


def test_slot_reading_of_long_texts_ends_in_time() -> None:
    for text in ("I live in " * 4000, "we moved from A " * 400, "I use Aa Bb " * 900, "\0" * 9000):
        assert isinstance(read_slot_statements(text, "Jonas"), list)


@pytest.mark.parametrize(
    "message",
    [
        "We love the old films at Christmas.",
        "I prefer window seats to aisle seats now.",
        "I live in Leipzig, no longer in Dresden.",
        "I moved from Bergen to Oslo last week.",
        "I work for Ericsson as a baker now, no longer for Nokia.",
        "We switched from CircleCI to Buildkite for our tests.",
        "The concert was moved to the 9 May.",
    ],
)
def test_slots_read_messages_whose_values_are_quotations(message: str) -> None:
    """A quotation counts as no value: a title that somebody loves is read, and says nothing."""
    words = message.rstrip(".").split()
    for first, last in itertools.combinations(range(len(words) + 1), 2):
        for left in ("", "the "):
            quoted = " ".join([*words[:first], f'{left}"{" ".join(words[first:last])}"'])
            text = " ".join([quoted, *words[last:]])
            assert all(
                one.value or one.old or one.slot in ("job", "plan")
                for one in read_slot_statements(text, "a")
            )


def test_slots_are_found_at_every_place_of_speaker() -> None:
    """Looking only where speakers name themselves finds what looking everywhere finds."""
    parts = (
        "I live in Lisbon", "we've moved to Porto", "My CI runs on Jenkins", "Dinner is cancelled",
        "jazz is my favourite", "I'm using Vim", "I don't eat meat any more", "let's switch to Zig",
        "our launch has been moved to May", "Iris lives in Rome", "the wedding will be in June",
    )  # fmt: skip
    found = 0
    for first, second, third in itertools.product(parts, repeat=3):
        text = f"{first}, and {second} but {third}"
        places = find_required(text)
        for form in SPOKEN:
            expected = [match.span() for match in form.pattern.finditer(text)]
            assert [match.span() for match in find_form(form, text, places)] == expected, text
            found += len(expected)
    assert found > len(parts) ** 3


@pytest.mark.parametrize(
    "word",
    sorted(
        {
            word
            for form in SPOKEN
            if form.required == "doing"
            for word in _list_verbs(form.pattern.pattern)
        }
    ),
)
def test_slots_verb_of_each_form_is_looked_for(word: str) -> None:
    """A form whose verb is not among what forms require would never match."""
    assert find_required(f"I have {word} it.")["doing"] == [0]
    assert find_required(f"We now {word} it.")["doing"] == [0]
