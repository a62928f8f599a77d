"""Whatever the text, the full text parser gets no long joined run and no comment without an end."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.log.fulltext_input import MAX_JOINERS, sanitize_for_parser

JOINERS = "_-./~@:+=?&%#"
ENDERS = " \n\t,;()<>[]{}\"'!"
RUN_ENDS = re.compile(rf"[{re.escape(ENDERS)}]+")
LETTERS = "aZ19éß漢\u0301\u200b😀"
UNITS = st.text(alphabet=LETTERS + JOINERS + JOINERS + ENDERS + "<!-", min_size=1, max_size=8)
TEXTS = st.builds("".join, st.lists(st.builds(str.__mul__, UNITS, st.integers(1, 200)), max_size=3))


@given(TEXTS)
@example("<!--")
def test_fulltext_input_limits_joined_runs(text: str) -> None:
    parted = sanitize_for_parser(text)
    runs = RUN_ENDS.split(parted)
    assert max(sum(map(run.count, JOINERS)) for run in runs) <= MAX_JOINERS
    last_end = parted.rfind("-->")
    assert parted.rfind("<!--") + len("<!--") <= max(last_end, len("<!--") - 1)


@given(TEXTS)
def test_fulltext_input_keeps_character_positions(text: str) -> None:
    parted = sanitize_for_parser(text)
    assert len(parted) == len(text)
    changes = {(a, b) for a, b in zip(text, parted, strict=True) if a != b}
    assert changes <= {(mark, " ") for mark in JOINERS + "<!"}


@given(TEXTS)
def test_fulltext_input_is_idempotent(text: str) -> None:
    parted = sanitize_for_parser(text)
    assert sanitize_for_parser(parted) == parted


@pytest.mark.parametrize(
    "text",
    [
        "a_" * MAX_JOINERS + "z" * 20_000,
        "z" * 70_000,
        "snake_case_name = other.module_name.attribute(first_arg, second-arg)\n" * 500,
        "https://host.example.com:8443/a/b/c-d/e_f.html?x=1&y=2#part and me@mail.example.org "
        * 200,
        "550e8400-e29b-41d4-a716-446655440000 ../../src/../lib/a.py 1.2.3-rc.1+build.5 -5 1e-9 "
        * 200,
        '{"a_b":"c-d","e.f":["/g/h","i@j.k"],"l":-1.5e-3},' * 400,
        "<!-- one --> text <!-- two_three --> more " * 400,
        "甲-乙、丙-丁。" * 500,
        "-" * MAX_JOINERS,
    ],
)
def test_fulltext_input_leaves_everyday_text(text: str) -> None:
    assert sanitize_for_parser(text) == text


def test_fulltext_input_parts_joiners_past_limit() -> None:
    one = "a-" * MAX_JOINERS
    assert sanitize_for_parser(f"{one}b-_-c{one}d_e") == f"{one}b   c{one}d e"


def test_fulltext_input_blanks_only_unended_comment() -> None:
    filler = "word " * 20
    assert sanitize_for_parser(f"{filler}<!-- a --><!-- b") == f"{filler}<!-- a -->  -- b"
    assert sanitize_for_parser(f"{filler}<!-- a <!-- b -->") == f"{filler}<!-- a <!-- b -->"
    assert sanitize_for_parser(f"{filler}<!-->") == f"{filler}  -->"
