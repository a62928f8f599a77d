"""The principal of a credential, and what it may read and write."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from strandline.errors import Forbidden, Invalid
from strandline.participants import drop_agents, normalize_participant_set

type Right = Literal["read", "write", "admin", "operator", "erase"]
RIGHTS: tuple[Right, ...] = ("read", "write", "admin", "operator", "erase")
_KEY_HINTS = {
    "erase": 'No right includes it. On one machine `make key ARGS="--tenant TENANT --right read '
    '--right write --right erase"` makes such a key, else an operator does.',
    "admin": "On one machine the key in `admin.key` of the data directory has it, else an operator "
    "makes such a key.",
    "operator": 'On one machine `make key ARGS="--tenant ops --right operator"` makes such a key.',
}
"""How to come by a key with a right that keys have by no other right."""


@dataclass(frozen=True)
class Principal:
    """The identity and rights of a verified credential."""

    tenant: str
    user: str | None
    """The participant that the credential is bound to, or None."""
    rights: frozenset[str]
    key_id: str = ""
    """The public id of the API key, or of the certificate's row."""
    agents_share: bool = False
    """Whether the tenant's agents count as software and not as listeners: reads are then not on
    their behalf."""
    reading_space: str | None = None
    """The embedding space that the tenant reads; None: the configured one."""

    def require_right(self, right: Right) -> None:
        """Raise Forbidden unless the credential has this right. `admin` includes read and write,
        and not `erase`: nobody erases by accident."""
        if not self.has_right(right):
            hint = f" {_KEY_HINTS[right]}" if right in _KEY_HINTS else ""
            raise Forbidden(f"This credential lacks the right {right!r}.{hint}", right=right)

    def has_right(self, right: Right) -> bool:
        """Whether the credential has this right, by itself or as an admin's."""
        return right in self.rights or ("admin" in self.rights and right in ("read", "write"))

    @property
    def may_read_everybody(self) -> bool:
        """Whether the credential may read on behalf of nobody, and so all of the tenant."""
        return "admin" in self.rights and self.user is None

    def resolve_viewer(
        self, participants: Sequence[str] | None, *, everybody: bool = False
    ) -> tuple[str, ...]:
        """The set Q that this reader asks for, sorted: the named participants, and always the bound
        user. It is empty, and then everything is in view, only where `everybody` says so. Where the
        tenant's agents share, a Q with others in it has no agents. Only reads may use it. Raises
        Invalid for nobody, and for `everybody` beside participants; Forbidden for `everybody` of
        another credential than an unbound admin's."""
        if everybody:
            self._require_may_name_everybody(participants)
            return ()
        viewers = set(normalize_participant_set(participants)) if participants else set[str]()
        if self.user:
            viewers.add(self.user)
        if not viewers:
            way_out = (
                "say that you mean everybody of the tenant (`?everybody=true`)"
                if self.may_read_everybody
                else "use a credential bound to a user"
            )
            raise Invalid(
                "participants: name on whose behalf you ask (`?participants=user:alice`), or "
                f"{way_out}",
                field="participants",
            )
        members = sorted(viewers)
        return tuple(drop_agents(members) if self.agents_share else members)

    def _require_may_name_everybody(self, participants: Sequence[str] | None) -> None:
        if not self.may_read_everybody:
            raise Forbidden(
                "everybody: needs an admin's credential that is not bound to a user; name "
                "participants instead.",
                field="everybody",
            )
        if participants:
            raise Invalid(
                "everybody: is for a read without participants; send one of the two (a session has "
                "participants of its own)",
                field="everybody",
            )

    def require_own_ids(self, tenant_id: str | None, user_id: str | None) -> None:
        """Raise Forbidden if a body names another tenant or user than the credential (C-05);
        repeating the credential's own is fine."""
        if tenant_id is not None and tenant_id != self.tenant:
            raise Forbidden("tenant_id is not this credential's tenant.", field="tenant_id")
        if user_id is not None and user_id not in (self.user, (self.user or "").partition(":")[2]):
            hint = "" if self.user else '; say who takes part as `participants`: ["user:NAME"]'
            raise Forbidden(f"user_id is not this credential's user{hint}.", field="user_id")
