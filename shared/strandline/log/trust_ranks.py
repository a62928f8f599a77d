"""How far an event is trusted, by its origin."""

from collections.abc import Iterable, Mapping

_TRUST_RANKS: Mapping[str, int] = {
    origin: rank
    for rank, origin in enumerate(("document", "tool", "agent", "user", "system"), start=1)
}
"""The same ranks as the SQL function `trust_rank`; a test checks that they are equal."""


def trust_rank(origin: str) -> int:
    """The trust rank of an origin, from 1 (least) to 5. An unknown origin has rank 0."""
    return _TRUST_RANKS.get(origin, 0)


def least_trusted(origins: Iterable[str]) -> str:
    """The least trusted of one or more origins. Raises ValueError for none."""
    return min(origins, key=trust_rank)
