"""SQL for the embedding space that a tenant reads, and for its switch to another."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class ReadSpace:
    """What a tenant reads, and its own setting."""

    reading_space: str | None
    """None: no event of the tenant was embedded yet, so it reads the configured space."""
    embedding_switch: str | None
    """`auto` or `held`; None: the deployment's setting."""


def read_space(access: TenantDb) -> ReadSpace:
    """The space that the caller's tenant reads. A tenant that does not exist reads none."""
    rows = access.fetch(
        ReadSpace,
        "select coalesce(reading_space, swept_space) as reading_space, embedding_switch"
        " from tenants where tenant_id = current_tenant()",
        {},
    )
    return rows[0] if rows else ReadSpace(None, None)


def pin_space(access: TenantDb, space: str) -> None:
    """Record the space that the tenant reads, unless one is recorded: from now on another
    configured model is filled beside it. In a transaction."""
    access.execute(
        "update tenants set reading_space = coalesce(swept_space, %(space)s)"
        " where tenant_id = current_tenant() and reading_space is null",
        {"space": space},
    )


def set_switch(access: TenantDb, embedding_switch: str | None) -> None:
    """Set how the tenant comes to read the configured space: `auto`, `held`, or None for the
    deployment's setting. Needs a `transaction`."""
    access.execute(
        "update tenants set embedding_switch = %(embedding_switch)s"
        " where tenant_id = current_tenant()",
        {"embedding_switch": embedding_switch},
    )


@dataclass(frozen=True)
class SpaceSwitch:
    """A switch from one space to another, ended or not."""

    begun_at: datetime
    from_space: str
    to_space: str
    texts: int
    """How many texts the new model has been given,"""
    characters: int
    """and of how many characters."""
    failure: str | None
    """Why the last attempt to fill the new space ended early."""
    compared_at: datetime | None
    questions: int | None
    """How many questions were asked in both spaces."""
    overlap: float | None
    """The share of the first ten hits that both have, over these questions."""
    same_first: float | None
    """The share of these questions with the same first hit."""
    ended_at: datetime | None
    switched: bool


def read_latest_switch(access: TenantDb) -> SpaceSwitch | None:
    """The switch of the caller's tenant that began last; None: none ever did."""
    rows = access.fetch(
        SpaceSwitch,
        """
        select begun_at, from_space, to_space, texts, characters, failure, compared_at, questions,
            overlap, same_first, ended_at, switched
        from space_switches where tenant_id = current_tenant() order by begun_at desc limit 1
        """,
        {},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class FillCounts:
    """How far a space is filled. Each pair is what it has, and what it is to have."""

    events: int
    all_events: int
    chains: int
    all_chains: int
    nodes: int
    all_nodes: int
    refused: int
    """Events whose text the space's model refused."""


def count_filled(access: TenantDb, space: str) -> FillCounts:
    """Count the vectors of the caller's tenant in this space. It reads an index entry for each
    chain and each node, and of events the positions of their scopes alone."""
    (counts,) = access.fetch(
        FillCounts,
        """
        select (select coalesce(sum(embedded_seq), 0)::bigint from embedding_progress
                where tenant_id = current_tenant() and space = %(space)s) as events,
            (select coalesce(sum(last_seq), 0)::bigint from scopes
                where tenant_id = current_tenant()) as all_events,
            (select count(*) from chain_vectors v
                where v.tenant_id = current_tenant() and v.space = %(space)s) as chains,
            (select count(*) from chains c
                where c.tenant_id = current_tenant() and c.status = 'active') as all_chains,
            (select count(*) from graph_nodes g where g.tenant_id = current_tenant()
                and %(space)s in (g.space, g.next_space)) as nodes,
            (select count(*) from graph_nodes g
                where g.tenant_id = current_tenant()) as all_nodes,
            (select count(*) from event_vectors v where v.tenant_id = current_tenant()
                and v.space = %(space)s and v.refusal is not null) as refused
        """,
        {"space": space},
    )
    return counts


def list_switches_with_leftovers(access: TenantDb, before: datetime) -> Sequence[SpaceSwitch]:
    """The switches that ended before this moment, and whose space that is not read may still have
    vectors."""
    return access.fetch(
        SpaceSwitch,
        """
        select begun_at, from_space, to_space, texts, characters, failure, compared_at, questions,
            overlap, same_first, ended_at, switched
        from space_switches
        where tenant_id = current_tenant() and removed_at is null and ended_at < %(before)s
        order by begun_at
        """,
        {"before": before},
    )
