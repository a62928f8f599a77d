"""Participants in canonical form, and the scope id of an exact set of them."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from uuid import UUID

from strandline.derived_ids import to_uuid8
from strandline.errors import Invalid

MAX_PARTICIPANTS = 64
MAX_LENGTH = 200
# A kind, a colon, a name: `user:alice`, `agent:helper`. Only the kinds `user` and `agent` have a
# meaning in Strandline.
_PARTICIPANT = re.compile(r"[a-z][a-z0-9_-]{0,31}:\S(?:.*\S)?", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and lone surrogates, which UTF-8 cannot encode."""
_JOINED = re.compile(r",\s*(user|agent):", re.ASCII)
_LOST_PLUS = re.compile(r"[a-z][a-z0-9_-]*:[^\s@]+( +[^\s@]+)+@[^\s@]+", re.ASCII)
"""A participant named by an e-mail address whose plus was read as a space."""


def normalize_participant(name: str, field: str = "participants") -> str:
    """One participant in canonical form: NFC, trimmed, case kept. Raises Invalid naming `field`."""
    text = unicodedata.normalize("NFC", name).strip()
    if len(text) > MAX_LENGTH:
        raise Invalid(f"{field}: a participant is at most {MAX_LENGTH} characters", field=field)
    if _CONTROL.search(text) or not _PARTICIPANT.fullmatch(text):
        raise Invalid(
            f"{field}: a participant is a lower-case kind, a colon and a name, like `user:alice`, "
            "without control characters",
            field=field,
        )
    return text


def is_joined_by_comma(name: str) -> bool:
    """Whether a text names several participants, with commas between them."""
    return _JOINED.search(name) is not None


def check_names_in_address(names: Iterable[str]) -> None:
    """Refuse participants whose names an address cannot have meant: they would be somebody of whom
    nothing is known. Raises Invalid."""
    for name in names:
        if _LOST_PLUS.fullmatch(name):
            raise Invalid(
                "participants: a name has a space where an e-mail address has none. In an address a"
                " + means a space: write it as %2B, as in user:ann%2Bwork@example.com",
                field="participants",
            )
        if is_joined_by_comma(name):
            raise Invalid(
                "participants: names several at once; repeat the parameter instead, as in"
                " participants=user:alice&participants=agent:helper",
                field="participants",
            )


def normalize_participant_set(names: Iterable[str], field: str = "participants") -> list[str]:
    """The canonical set: each participant normalised, duplicates removed, sorted by code point.
    Raises Invalid naming `field`."""
    members = sorted({normalize_participant(name, field) for name in names})
    if not 1 <= len(members) <= MAX_PARTICIPANTS:
        raise Invalid(f"{field}: between 1 and {MAX_PARTICIPANTS} participants", field=field)
    return members


def derive_scope_id(tenant: str, members: list[str]) -> UUID:
    """The id of the scope of exactly these canonical participants in this tenant. It is a UUIDv8
    (RFC 9562) over SHA-256, so the id is the unique hash of the set: nobody has to look it up, and
    two writers that create the same scope at once conflict on one row."""
    digest = hashlib.sha256(json.dumps([tenant, *members], ensure_ascii=False).encode()).digest()
    return to_uuid8(digest)


def drop_agents(members: Sequence[str]) -> list[str]:
    """The members without agents (`agent:helper`), in the same order; all members if all are
    agents."""
    return [name for name in members if not name.startswith("agent:")] or list(members)


def display_name(participant: str) -> str:
    """The name without its kind, for people: `user:alice` is `alice`."""
    return participant.partition(":")[2]
