"""SQL that drops folded chains, and keeps the effect of their recalls until they are refolded."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class DroppedChainState:
    """The effect of recalls and archiving on a chain, kept while the chain is dropped and
    refolded."""

    version: int
    """The chain's newest version when it was dropped. The chain is restored once it is refolded up
    to this version."""
    strength: float
    accessed_at: datetime
    boosted_at: datetime | None
    archived_at: datetime | None


def read_dropped_state(access: TenantDb, chain_id: UUID) -> DroppedChainState | None:
    """Read the kept effect of recalls on a chain that was dropped and is not yet refolded to its
    last version; else None."""
    rows = access.fetch(
        DroppedChainState,
        "select version, strength, accessed_at, boosted_at, archived_at from dropped_chain_state"
        " where chain_id = %(chain_id)s",
        {"chain_id": chain_id},
    )
    return rows[0] if rows else None


def drop_chains(access: TenantDb, scope_ids: Sequence[UUID]) -> None:
    """Delete all folded rows of these scopes, and make the scopes due. Decisions, recalls and the
    effect of recalls on each chain are kept. `fold_no` is raised, so that a running fold
    notices."""
    params: dict[str, object] = {"scope_ids": list(scope_ids)}
    access.execute(  # in the order in which append locks scopes
        "select from scopes where scope_id = any (%(scope_ids)s) order by scope_id"
        " for no key update",
        params,
    )
    for statement in _DROP_STATEMENTS:
        access.execute(statement, params)


_DROP_STATEMENTS = (
    # An existing row has a later version: the chain was still being refolded up to it.
    """
    insert into dropped_chain_state (tenant_id, chain_id, scope_id, participants, version, strength,
        accessed_at, boosted_at, archived_at)
    select tenant_id, chain_id, scope_id, participants, version, strength, accessed_at, boosted_at,
        archived_at
    from chains where scope_id = any (%(scope_ids)s)
    on conflict (tenant_id, chain_id) do update set strength = excluded.strength,
        accessed_at = excluded.accessed_at, boosted_at = excluded.boosted_at
    """,
    "delete from chain_vectors where scope_id = any (%(scope_ids)s)",
    "delete from chain_events where scope_id = any (%(scope_ids)s)",
    "delete from chain_versions where scope_id = any (%(scope_ids)s)",
    "delete from chains where scope_id = any (%(scope_ids)s)",
    "delete from lanes where scope_id = any (%(scope_ids)s)",
    "update scopes set folded_seq = 0, fold_no = fold_no + 1 where scope_id = any (%(scope_ids)s)",
    "insert into scope_work (tenant_id, scope_id, participants, due_at)"
    " select tenant_id, scope_id, participants, now() from scopes"
    " where scope_id = any (%(scope_ids)s) order by scope_id on conflict do nothing",
)
