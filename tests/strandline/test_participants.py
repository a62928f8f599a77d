"""Canonical participants, and the scope that an exact set of them names."""

import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Invalid
from strandline.participants import (
    MAX_LENGTH,
    MAX_PARTICIPANTS,
    derive_scope_id,
    display_name,
    drop_agents,
    normalize_participant,
    normalize_participant_set,
)

NAMES = st.builds(
    "{}:{}".format,
    st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True),
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=20),
)


def test_participant_spellings_of_one_name_are_one() -> None:
    composed, decomposed = "user:Zo\u00eb", "user:Zoe\u0308"
    assert composed != decomposed
    assert normalize_participant(decomposed) == normalize_participant(composed) == composed


@pytest.mark.parametrize("around", [" ", "\t", "\n", "\u00a0", "\u2003", " \r\n "])
def test_participant_name_is_trimmed(around: str) -> None:
    assert normalize_participant(f"{around}user:alice{around}") == "user:alice"


def test_participant_name_keeps_inner_white_space() -> None:
    assert normalize_participant("user:Alice  of the Hill") == "user:Alice  of the Hill"


def test_participant_name_is_case_sensitive() -> None:
    assert normalize_participant("user:Alice") == "user:Alice"
    assert normalize_participant_set(["user:Alice", "user:alice"]) == ["user:Alice", "user:alice"]
    assert derive_scope_id("acme", ["user:Alice"]) != derive_scope_id("acme", ["user:alice"])


@given(name=NAMES)
def test_participant_canonical_name_is_stable(name: str) -> None:
    once = normalize_participant(name)
    assert normalize_participant(once) == once
    assert unicodedata.is_normalized("NFC", once)


@given(names=st.lists(NAMES, min_size=1, max_size=8), seed=st.integers(0, 1000))
def test_participants_scope_ignores_order_and_doubles(names: list[str], seed: int) -> None:
    shuffled = [*names, *names]
    random.Random(seed).shuffle(shuffled)
    respelled = [f" {unicodedata.normalize('NFD', name)}\n" for name in shuffled]
    members = normalize_participant_set(names)
    assert normalize_participant_set(respelled) == members == sorted(set(members))
    assert derive_scope_id("acme", normalize_participant_set(respelled)) == derive_scope_id(
        "acme", members
    )


@given(names=st.lists(NAMES, min_size=1, max_size=5), more=NAMES)
def test_participants_scope_differs_by_member_and_tenant(names: list[str], more: str) -> None:
    members = normalize_participant_set(names)
    assert derive_scope_id("acme", members) != derive_scope_id("other", members)
    if normalize_participant(more) not in members:
        assert derive_scope_id(
            "acme", normalize_participant_set([*names, more])
        ) != derive_scope_id("acme", members)


def test_participants_scope_id_resists_moved_borders() -> None:
    assert derive_scope_id("acme", ["user:a", "user:b"]) != derive_scope_id(
        "acme", ['user:a","user:b']
    )
    assert derive_scope_id("a", ["user:b"]) != derive_scope_id("a,user:b", [])


def test_participants_scope_id_is_stable_uuid_8() -> None:
    scope_id = derive_scope_id("acme", ["agent:helper", "user:alice"])
    assert (scope_id.version, scope_id.variant) == (8, "specified in RFC 4122")
    # SHA-256 of '["acme", "agent:helper", "user:alice"]', with version and variant set: stored in
    # every row of every deployment.
    assert str(scope_id) == "3e6bfb3a-0e65-8cc9-8443-a8f366da4181"


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "alice",
        ":alice",
        "user:",
        "user: ",
        "user: alice",
        "User:alice",
        "1user:alice",
        "us er:alice",
        "üser:alice",
        f"{'k' * 33}:alice",
        "*",
        "-user:alice",
    ],
)
def test_participant_invalid_name_is_refused_by_field(name: str) -> None:
    with pytest.raises(Invalid) as error:
        normalize_participant(name, "speaker")
    assert error.value.details["field"] == "speaker"
    assert error.value.message.startswith("speaker: ")


@pytest.mark.parametrize("point", [0, 0x01, 0x09, 0x0A, 0x1F, 0x7F, 0x85, 0x9F, 0xD800, 0xDFFF])
def test_participant_control_character_is_refused(point: int) -> None:
    with pytest.raises(Invalid, match="control"):
        normalize_participant(f"user:al{chr(point)}ice")


def test_participant_name_length_is_limited() -> None:
    longest = "user:" + "é" * (MAX_LENGTH - 5)
    assert normalize_participant(unicodedata.normalize("NFD", longest)) == longest
    with pytest.raises(Invalid, match=str(MAX_LENGTH)) as error:
        normalize_participant(longest + "é")
    assert error.value.details["field"] == "participants"


def test_participants_count_is_limited_without_doubles() -> None:
    most = [f"user:{n}" for n in range(MAX_PARTICIPANTS)]
    assert len(normalize_participant_set(most + most)) == MAX_PARTICIPANTS
    with pytest.raises(Invalid, match=str(MAX_PARTICIPANTS)):
        normalize_participant_set([*most, "user:one-more"])


def test_participants_empty_set_is_refused() -> None:
    with pytest.raises(Invalid) as error:
        normalize_participant_set([], "participants")
    assert error.value.details["field"] == "participants"


def test_participant_display_name_follows_first_colon() -> None:
    assert display_name("user:alice") == "alice"
    assert display_name("agent:gpt:4") == "gpt:4"


@pytest.mark.parametrize(
    ("members", "rest"),
    [
        ([], []),
        (["agent:a"], ["agent:a"]),
        (["agent:a", "agent:b"], ["agent:a", "agent:b"]),
        (["agent:a", "user:b"], ["user:b"]),
        (
            ["agent:a", "agents:x", "group:agent", "user:agent:a"],
            ["agents:x", "group:agent", "user:agent:a"],
        ),
    ],
)
def test_participants_agents_drop_out_beside_others(members: list[str], rest: list[str]) -> None:
    assert drop_agents(members) == rest
