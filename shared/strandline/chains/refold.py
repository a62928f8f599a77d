"""Refold a tenant's chains from the log and the stored decisions. The effect of recalls on them is
kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.errors import NotFound
from strandline.log import store_scopes
from strandline.tenants import store_audit
from strandline.tenants.store_audit import AuditContext

_SCOPES_PER_TRANSACTION = 50
"""How many scopes one transaction drops. Appends to them wait until it ends."""


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


def read_dropped_chain_state(access: TenantDb, chain_id: UUID) -> DroppedChainState | None:
    """Read the kept effect of recalls on a chain that was dropped and is not yet refolded to its
    last version; else None."""
    rows = access.fetch(
        DroppedChainState,
        "select version, strength, accessed_at, boosted_at, archived_at from dropped_chain_state"
        " where chain_id = %(chain_id)s",
        {"chain_id": chain_id},
    )
    return rows[0] if rows else None


def drop_chains_of_scopes(access: TenantDb, scope_ids: Sequence[UUID]) -> None:
    """Delete the folded rows of these scopes and have them refolded. The refold produces the same
    chains, because decisions are kept, with the same strength and heat, because the effect of
    recalls is kept. `fold_no` is raised, so that a running fold notices."""
    params: dict[str, object] = {"scope_ids": list(scope_ids)}
    with access.transaction():
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


def drop_chains_to_refold(
    access: TenantDb, audit_context: AuditContext, scope_id: UUID | None
) -> int:
    """Drop all folded rows of the caller's tenant, or of one scope of it. Returns the number of
    scopes. The scopes become due, and the next sweep folds them again; until then their chains are
    missing. Nothing is lost, even if this is interrupted. Raises NotFound for an unknown scope."""
    if scope_id is not None and store_scopes.get_scope(access, scope_id) is None:
        raise NotFound("There is no scope with this scope_id in this tenant.")
    store_audit.add_audit_entry(
        access, audit_context, {} if scope_id is None else {"scope_id": str(scope_id)}
    )
    dropped_count = 0
    page = (
        [scope_id]
        if scope_id
        else store_scopes.list_scope_ids_after(access, None, _SCOPES_PER_TRANSACTION)
    )
    while page:
        drop_chains_of_scopes(access, page)
        dropped_count += len(page)
        page = (
            []
            if scope_id
            else store_scopes.list_scope_ids_after(access, page[-1], _SCOPES_PER_TRANSACTION)
        )
    return dropped_count
