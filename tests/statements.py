"""Statements as the knowledge graph stores them: in a transaction, by the log's verbs."""

from collections.abc import Sequence
from typing import Any

from strandline.auth.principals import Principal
from strandline.db.database import Database
from strandline.http.writer import make_caller
from strandline.log.append_state import AppendResult
from strandline.log.statement_events import (
    GraphStatement,
    append_statement_events,
    build_statement_events,
)

ALICE, HELPER = "user:alice", "agent:helper"


def make_statement(content: str, *participants: str, **fields: Any) -> GraphStatement:
    """What a user stated among `participants` (by default alice and her helper)."""
    names = list(participants) or [ALICE, HELPER]
    operation = fields.pop("operation", {"op": "create", "fact": content})
    return GraphStatement(names, fields.pop("role", "user"), content, operation, **fields)


def make_principal(user: str | None = None, tenant: str = "acme") -> Principal:
    """Anyone who may write; bound to a user, or to nobody."""
    return Principal(tenant, user, frozenset({"read", "write"}))


def state(
    database: Database, statements: Sequence[GraphStatement], principal: Principal | None = None
) -> Sequence[AppendResult]:
    """Store them in one transaction."""
    who = principal or make_principal()
    access = database.connect_as(make_caller(who))
    batch = build_statement_events(who, statements)
    with access.transaction():
        results = append_statement_events(access, batch)
    return [results.results[n] for n in range(len(statements))]
