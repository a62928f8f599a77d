"""SQL for the figures of embedding spaces, as a tenant's decision: stored once, never changed."""

import json
from dataclasses import dataclass
from typing import Any

from strandline.db.database import TenantDb
from strandline.embeddings.similarity_thresholds import Thresholds, thresholds_for
from strandline.embeddings.space_figures import (
    SHIPPED_FIGURES,
    TEXTS_VERSION,
    PairCosines,
    SpaceFigures,
)
from strandline.tuning import Tuning


@dataclass(frozen=True)
class _FiguresRow:
    figures: dict[str, Any]


def read_figures(access: TenantDb, space: str) -> SpaceFigures | None:
    """The figures of an embedding space; None if it is neither one that ships nor measured yet."""
    if space in SHIPPED_FIGURES:
        return SHIPPED_FIGURES[space]
    rows = access.fetch(
        _FiguresRow,
        """
        select f.figures from space_figures f
        where f.tenant_id = current_tenant() and f.space = %(space)s
            and f.texts_version = %(texts_version)s
        """,
        {"space": space, "texts_version": TEXTS_VERSION},
    )
    return parse_figures(rows[0].figures) if rows else None


def store_figures(access: TenantDb, space: str, figures: SpaceFigures) -> bool:
    """Store the figures of a space, unless another process has, or there is no such tenant. Returns
    whether they were stored. In a transaction."""
    columns = {name: pairs._asdict() for name, pairs in figures._asdict().items()}
    return (
        access.execute(
            """
            insert into space_figures (tenant_id, space, texts_version, figures)
            select t.tenant_id, %(space)s, %(texts_version)s, %(figures)s::jsonb
            from tenants t where t.tenant_id = current_tenant()
            on conflict do nothing
            """,
            {"space": space, "texts_version": TEXTS_VERSION, "figures": json.dumps(columns)},
        )
        == 1
    )


def read_thresholds(access: TenantDb, space: str, tuning: Tuning) -> Thresholds:
    """The thresholds of an embedding space, with those that the tenant overrides."""
    return thresholds_for(space, read_figures(access, space), tuning)


def parse_figures(columns: dict[str, Any]) -> SpaceFigures:
    """The figures of a space as they are stored."""
    return SpaceFigures(*(PairCosines(**columns[name]) for name in SpaceFigures._fields))
