"""Chains laid down by hand, for tests of what is done with them: whole rows, without the fold."""

import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from strandline import participants
from strandline.chains.heat import HeatInputs, compute_cold_at, compute_promote_until
from strandline.tuning import DEFAULTS
from tests.support import ScratchDatabase

CREATED_AT = datetime(2026, 5, 8, 12, tzinfo=UTC)

_INSERT_CHAINS = """
with given as (
    select * from jsonb_to_recordset(%s::jsonb) r (chain_id uuid, importance float8, density float8,
        strength float8, accessed_at timestamptz, cold_at timestamptz, promote_until timestamptz)
), who as (select %s::text as tenant_id, %s::uuid as scope_id, %s::text[] as participants
), tenant as (
    insert into tenants (tenant_id) select tenant_id from who on conflict do nothing
), scope as (
    insert into scopes (tenant_id, scope_id, participants) select * from who on conflict do nothing
), chain as (
    insert into chains (tenant_id, chain_id, scope_id, participants, session_id, version, status,
        last_event_at, created_at, importance, density, strength, accessed_at, cold_at,
        promote_until)
    select tenant_id, chain_id, scope_id, participants, '', 1, 'active', accessed_at, accessed_at,
        importance, density, strength, accessed_at, cold_at, promote_until from given, who
)
insert into chain_versions (tenant_id, chain_id, version, scope_id, participants, session_id,
    created_at_seq, closed_by, first_seq, last_seq, event_count, started_at, last_event_at, topic,
    summary, entities, importance, density, quality, settings, models, content_hash, trust)
select tenant_id, chain_id, 1, scope_id, participants, '', 2, 'break', 1, 1, 1, accessed_at,
    accessed_at, 'tides', 'The tide is late.', '[]', importance, density, 1, '{}', '{}', '\\x00',
    'user'
from given, who
"""


def insert_chains(
    base: ScratchDatabase,
    states: Sequence[HeatInputs],
    tenant: str = "acme",
    members: Sequence[str] = ("agent:helper", "user:alice"),
) -> list[tuple[UUID, UUID, Sequence[str]]]:
    """A chain for each state, in one scope, by the settings that are the default: their ids, scope
    and participants as `recalls.record` takes them, in their order."""
    scope_id = participants.derive_scope_id(tenant, list(members))
    rows = [
        {
            "chain_id": str(uuid.uuid4()),
            **state._asdict(),
            "accessed_at": state.accessed_at.isoformat(),
            "cold_at": compute_cold_at(state, DEFAULTS).isoformat(),
            "promote_until": compute_promote_until(state, DEFAULTS).isoformat(),
        }
        for state in states
    ]
    base.rows(_INSERT_CHAINS, json.dumps(rows), tenant, scope_id, list(members))
    return [(UUID(row["chain_id"]), scope_id, tuple(members)) for row in rows]
