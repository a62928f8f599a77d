"""The principal of a credential, and what it may read and write."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from strandline.errors import Forbidden, Invalid
from strandline.participants import drop_agents, normalize_set

type Right = Literal["read", "write", "admin", "operator", "erase"]
RIGHTS: tuple[Right, ...] = ("read", "write", "admin", "operator", "erase")


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

    def require_right(self, right: Right) -> None:
        """Raise Forbidden unless the credential has this right. `admin` includes read and write,
        and not `erase`: nobody erases by accident."""
        if not self.has_right(right):
            raise Forbidden(f"This credential lacks the right {right!r}.", right=right)

    def has_right(self, right: Right) -> bool:
        """Whether the credential has this right, by itself or as an admin's."""
        return right in self.rights or ("admin" in self.rights and right in ("read", "write"))

    def resolve_viewer(self, participants: Sequence[str] | None) -> tuple[str, ...]:
        """The set Q that this reader asks for, sorted: the named participants, and always the bound
        user. Where the tenant's agents share, a Q with others in it has no agents. Only reads may
        use it. Raises Invalid for an empty set, except for an admin, who then sees everything."""
        viewers = set(normalize_set(participants)) if participants else set[str]()
        if self.user:
            viewers.add(self.user)
        if not viewers and "admin" not in self.rights:
            raise Invalid(
                "participants: name on whose behalf you ask (`?participants=user:alice`), or use a "
                "credential bound to a user",
                field="participants",
            )
        members = sorted(viewers)
        return tuple(drop_agents(members) if self.agents_share else members)

    def require_own_ids(self, tenant_id: str | None, user_id: str | None) -> None:
        """Raise Forbidden if a body names another tenant or user than the credential (C-05);
        repeating the credential's own is fine."""
        if tenant_id is not None and tenant_id != self.tenant:
            raise Forbidden("tenant_id is not this credential's tenant.", field="tenant_id")
        if user_id is not None and user_id not in (self.user, (self.user or "").partition(":")[2]):
            hint = "" if self.user else '; say who takes part as `participants`: ["user:NAME"]'
            raise Forbidden(f"user_id is not this credential's user{hint}.", field="user_id")
