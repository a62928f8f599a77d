"""Which tenants have something due: asked by whoever sweeps, before any tenant is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from psycopg.rows import class_row

from strandline.db import Connection, translated


@dataclass(frozen=True)
class _Tenant:
    tenant_id: str


def named(connection: Connection, statement: LiteralString, params: Sequence[object]) -> list[str]:
    """The tenants that a statement names, which gives their ids and nothing else about them."""
    with translated(), connection.cursor(row_factory=class_row(_Tenant)) as cursor:
        return [row.tenant_id for row in cursor.execute(statement, params).fetchall()]
