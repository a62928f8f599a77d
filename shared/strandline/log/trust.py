"""How far what was said is trusted: by where it came from."""

from collections.abc import Iterable, Mapping

_TRUST_RANKS: Mapping[str, int] = {
    origin: rank
    for rank, origin in enumerate(("document", "tool", "agent", "user", "system"), start=1)
}
"""As `trust_rank` in the migrations ranks them; a test holds the two equal."""


def trust_rank(origin: str) -> int:
    """How far an origin is trusted, from 1; one that is not known is trusted least (0)."""
    return _TRUST_RANKS.get(origin, 0)


def least_trusted(origins: Iterable[str]) -> str:
    """The least trusted of these origins, of which there is one at least."""
    return min(origins, key=trust_rank)
