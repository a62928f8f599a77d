"""List nodes, and read a node's history: pages, with sealed positions as cursors."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from strandline.cursors import is_pg_snapshot
from strandline.db.database import TenantDb
from strandline.errors import Malformed, NotFound
from strandline.graph.lists.schemas import (
    FactInLineage,
    NodeHistory,
    NodeHistoryQuery,
    NodeObservationOut,
    NodePage,
    NodesQuery,
)
from strandline.graph.lists.store import ListedNode, NodeListFilter, NodeListPosition, list_nodes
from strandline.graph.lists.store_node_history import (
    HistoryPosition,
    ObservationRow,
    list_fact_lineage,
    list_observations,
)
from strandline.graph.nodes.answers import to_node_out
from strandline.graph.nodes.identity import format_node_id
from strandline.graph.nodes.node_types import NODE_TYPES, NodeType, to_api_field_names
from strandline.graph.nodes.store_read_nodes import BasicNodeAcrossScopes, find_node_across_scopes
from strandline.log.read import take_models_fitting_response
from strandline.log.store_erasure_marks import require_nothing_erased_since
from strandline.sealing import UnsealError

_CONTROL_FIELDS = ("upkeep", "identity")


class ListCursors:
    """The cursors of one list, with its filters, for one caller."""

    def __init__(self, access: TenantDb, name: str, *filters: object) -> None:
        """`filters` is everything that filters or orders the list."""
        caller = access.caller
        document = json.dumps([name, caller.tenant, caller.viewer, *filters], default=str)
        self._list_hash = hashlib.sha256(document.encode()).hexdigest()[:16]
        self._access = access

    def encode(self, pg_snapshot: str, *fields: object) -> str:
        """The cursor of a position, given as JSON values, on a page that shows this database
        snapshot."""
        document = [self._list_hash, pg_snapshot, *fields]
        return self._access.sealer.seal("cursor", self._access.caller.tenant, document)

    def decode[Key](self, cursor: str | None, parse: Callable[[Sequence[Any]], Key]) -> Key | None:
        """The position in a cursor, converted from its fields by `parse`; None for the first page.
        Raises Malformed for a cursor of another list, and Gone for a cursor from before an
        erasure."""
        if cursor is None:
            return None
        try:
            document = cast(
                "object",
                self._access.sealer.unseal("cursor", self._access.caller.tenant, cursor),
            )
            list_hash, pg_snapshot, *fields = cast("list[Any]", document)
            if list_hash != self._list_hash or not is_pg_snapshot(pg_snapshot):
                raise UnsealError
            position = parse(fields)
        except (UnsealError, ValueError, TypeError):
            raise Malformed(
                "cursor: is not one of this list: send next_cursor unchanged, with the same"
                " filters, participants and credential, or restart the list without one",
                field="cursor",
            ) from None
        require_nothing_erased_since(self._access, pg_snapshot)
        return position


def list_node_page(
    access: TenantDb, query: NodesQuery, *, combines_by_halving: bool = False
) -> NodePage:
    """A page of the nodes in view. Later pages show the list as it was at the time of the first
    one. Raises Malformed for an invalid cursor, and Gone for a cursor from before an erasure."""
    filters = query.model_dump(mode="json", exclude={"participants", "limit", "cursor"})
    cursors = ListCursors(access, "graph/nodes", filters)
    after = cursors.decode(query.cursor, _parse_list_position)
    list_filter = NodeListFilter(
        query.type,
        query.category,
        query.status,
        query.as_of,
        archived=query.archived,
        valid_only=query.valid_only,
        sort=query.sort,
        descending=query.order == "desc",
    )
    key = None
    if after is not None:
        read_at, key = after
        list_filter = replace(list_filter, as_of=read_at)
    rows = list_nodes(
        access, list_filter, key, query.limit + 1, combines_by_halving=combines_by_halving
    )
    page = take_models_fitting_response(map(to_node_out, rows[: query.limit]))
    last = rows[len(page) - 1] if page else None
    return NodePage(
        nodes=page,
        next_cursor=_make_list_cursor(cursors, last) if last and len(page) < len(rows) else None,
    )


def _make_list_cursor(cursors: ListCursors, row: ListedNode) -> str:
    place = row.sort_number, row.sort_text, str(row.node_id)
    return cursors.encode(row.pg_snapshot, row.read_at.isoformat(), *place)


def _parse_list_position(fields: Sequence[Any]) -> tuple[datetime, NodeListPosition]:
    read_at, number, text, node_id = fields
    return datetime.fromisoformat(read_at), NodeListPosition(
        float(number), str(text), UUID(node_id)
    )


def read_node_history(
    access: TenantDb, node_type: NodeType, node_id: UUID, query: NodeHistoryQuery
) -> NodeHistory:
    """The observations about a node in view, and for a fact its chain of revisions. Raises
    NotFound, Malformed for an invalid cursor, and Gone for a cursor from before an erasure."""
    node = find_node_across_scopes(access, node_id, None)
    if node is None or node.type != node_type:
        raise NotFound("there is no such node in view")
    cursors = ListCursors(access, "graph/history", node_id)
    after = cursors.decode(query.cursor, _parse_history_position)
    rows = list_observations(access, node.member_ids, after, query.limit + 1)
    observations = take_models_fitting_response(
        _to_observation_out(node, row) for row in rows[: query.limit]
    )
    last = rows[len(observations) - 1] if observations else None
    return NodeHistory(
        id=format_node_id(node.type, node.node_id),
        members=[format_node_id(node.type, member) for member in node.member_ids],
        observations=observations,
        next_cursor=_make_history_cursor(cursors, last)
        if last and len(observations) < len(rows)
        else None,
        revisions=_read_fact_lineage(access, node),
    )


def _make_history_cursor(cursors: ListCursors, row: ObservationRow) -> str:
    key = row.observed_at.isoformat(), row.source_id.hex, row.target_id.hex
    return cursors.encode(row.pg_snapshot, *key)


def _parse_history_position(fields: Sequence[Any]) -> HistoryPosition:
    observed_at, source_id, target_id = fields
    return HistoryPosition(datetime.fromisoformat(observed_at), UUID(source_id), UUID(target_id))


def _to_observation_out(node: BasicNodeAcrossScopes, row: ObservationRow) -> NodeObservationOut:
    changes = {name: value for name, value in row.patch.items() if name not in _CONTROL_FIELDS}
    changes = to_api_field_names(node.type, changes)
    if changes.get("valid_to"):
        changes["valid_to"] = datetime.fromisoformat(changes["valid_to"])
    if "identity" in row.patch:
        into = row.merged_into
        changes["merged_into"] = format_node_id(node.type, into) if into else None
    return NodeObservationOut(
        member=format_node_id(node.type, row.target_id),
        source_kind="statement" if row.source_version is None else "chain",
        source_id=row.source_id,
        version=row.source_version,
        observed_at=row.observed_at,
        speakers=row.speakers,
        event_ids=row.event_ids,
        changes=changes,
        is_evidence="upkeep" not in row.patch,
        confidence=row.confidence,
        trust=row.trust,
        valid_from=row.valid_from,
    )


def _read_fact_lineage(access: TenantDb, node: BasicNodeAcrossScopes) -> list[FactInLineage]:
    if not NODE_TYPES[node.type].is_invalidable:
        return []
    return [
        FactInLineage(
            id=format_node_id(node.type, row.node_id),
            content=row.content,
            valid_from=row.valid_from,
            valid_to=row.valid_to,
            reason=row.reason,
            replaced_by=[format_node_id(node.type, other) for other in row.replaced_by],
        )
        for row in list_fact_lineage(access, node.member_ids)
    ]
