"""SQL for answers that can be repeated."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.db.pipeline import RowQuery
from strandline.topics.store_references_query import PublishedSnapshot


@dataclass(frozen=True)
class StoredAnswer:
    """The stored selection of an answer."""

    answer_id: UUID
    version: int
    """The version of its snapshot; 0: none."""
    question_hash: bytes
    selection: dict[str, Any]
    answered_at: datetime


@dataclass(frozen=True)
class _AnswerId:
    answer_id: UUID


def make_answer_insert_query(access: TenantDb, answer: StoredAnswer) -> RowQuery[Any]:
    """Store an answer that was given to the caller."""
    return RowQuery(
        _AnswerId,
        """
        insert into reference_answers
            (tenant_id, answer_id, participants, version, question_hash, selection, answered_at)
        values (current_tenant(), %(answer_id)s, %(viewer)s, %(version)s, %(question_hash)s,
            %(selection)s::jsonb, %(answered_at)s)
        returning answer_id
        """,
        {
            "answer_id": answer.answer_id,
            "viewer": list(access.caller.viewer),
            "version": answer.version,
            "question_hash": answer.question_hash,
            "selection": json.dumps(answer.selection),
            "answered_at": answer.answered_at,
        },
    )


def find_answer_of_viewer(access: TenantDb, answer_id: UUID) -> StoredAnswer | None:
    """Find an answer that was given to this viewer; None if there is none."""
    rows = access.fetch(
        StoredAnswer,
        """
        select answer_id, version, question_hash, selection, answered_at from reference_answers
        where tenant_id = current_tenant() and answer_id = %(answer_id)s
            and participants = %(viewer)s::text[]
        """,
        {"answer_id": answer_id, "viewer": list(access.caller.viewer)},
    )
    return rows[0] if rows else None


def get_snapshot_of_version(access: TenantDb, version: int) -> PublishedSnapshot | None:
    """Get a snapshot by its version; None if it no longer exists."""
    rows = access.fetch(
        PublishedSnapshot,
        "select version, snapshot_id, published_at, configuration from snapshots"
        " where tenant_id = current_tenant() and version = %(version)s",
        {"version": version},
    )
    return rows[0] if rows else None


@dataclass(frozen=True)
class ScopeParticipants:
    """The participants of a scope."""

    scope_id: UUID
    participants: list[str]


def read_scope_participants(access: TenantDb, scope_ids: list[UUID]) -> Mapping[UUID, list[str]]:
    """Read the participants of these scopes, as far as they are visible."""
    rows = access.fetch(
        ScopeParticipants,
        "select scope_id, participants from scopes"
        " where tenant_id = current_tenant() and scope_id = any (%(scope_ids)s)",
        {"scope_ids": scope_ids},
    )
    return {row.scope_id: row.participants for row in rows}
