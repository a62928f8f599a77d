"""Who a credential stands for, and what that lets it read and write."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from strandline.errors import Forbidden, Invalid
from strandline.participants import normalize_set

type Right = Literal["read", "write", "admin", "operator"]
RIGHTS: tuple[Right, ...] = ("read", "write", "admin", "operator")


@dataclass(frozen=True)
class Principal:
    """A verified credential."""

    tenant: str
    user: str | None
    """The participant it is bound to, or none."""
    rights: frozenset[str]
    key_id: str = ""
    """The public id of the API key, or of the certificate's row."""

    def require_right(self, right: Right) -> None:
        """Raises Forbidden unless the credential has this right; admin reads and writes."""
        if right in self.rights or ("admin" in self.rights and right in ("read", "write")):
            return
        raise Forbidden(f"This credential lacks the right {right!r}.", right=right)

    def resolve_viewer(self, participants: Sequence[str] | None) -> tuple[str, ...]:
        """The set Q this reader asks for: the participants named, and the bound user by itself.
        Empty, so that everything is seen, for admins alone."""
        viewers = set(normalize_set(participants)) if participants else set[str]()
        if self.user:
            viewers.add(self.user)
        if not viewers and "admin" not in self.rights:
            raise Invalid(
                "participants: name on whose behalf you ask (`?participants=user:alice`), or use a "
                "credential bound to a user",
                field="participants",
            )
        return tuple(sorted(viewers))

    def require_own_ids(self, tenant_id: str | None, user_id: str | None) -> None:
        """A body may repeat the credential's ids; Forbidden for others (C-05)."""
        if tenant_id is not None and tenant_id != self.tenant:
            raise Forbidden("tenant_id is not this credential's tenant.", field="tenant_id")
        if user_id is not None and user_id not in (self.user, (self.user or "").partition(":")[2]):
            hint = "" if self.user else '; say who takes part as `participants`: ["user:NAME"]'
            raise Forbidden(f"user_id is not this credential's user{hint}.", field="user_id")
