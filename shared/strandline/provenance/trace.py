"""Provenance: from a derived row down to its events, and from an event up to the rows derived from
it."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast
from uuid import UUID

from pydantic import BaseModel

from strandline.db.database import TenantDb
from strandline.errors import Malformed, NotFound
from strandline.graph.nodes.identity import format_node_id
from strandline.graph.nodes.node_types import NodeType
from strandline.provenance import store
from strandline.provenance.schemas import (
    ProvenanceChainVersion,
    ProvenanceGraphItem,
    ProvenanceOut,
    ProvenanceTopicSlot,
)
from strandline.provenance.store import GraphItem, ResolvedId
from strandline.sealing import UnsealError

_MAX_VERSIONS = 100
_MAX_GRAPH_ITEMS = 100
_FIRST = UUID(int=0)


class _PagePosition(NamedTuple):
    """The last entry of a page, in a snapshot."""

    version: int | None
    row_id: UUID
    seq: int


class _CursorCodec:
    """Encodes and decodes the cursors of one row's list."""

    def __init__(self, access: TenantDb, row_id: UUID) -> None:
        self._access = access
        self._list = ["provenance", str(row_id), *access.caller.viewer]

    def encode(self, position: _PagePosition) -> str:
        fields = [self._list, position.version, str(position.row_id), position.seq]
        return self._access.sealer.seal("cursor", self._access.caller.tenant, fields)

    def decode(self, cursor: str) -> _PagePosition:
        """Raises Malformed."""
        try:
            document: object = self._access.sealer.unseal(
                "cursor", self._access.caller.tenant, cursor
            )
            of_list, version, row_id, seq = cast("list[Any]", document)
            if of_list != self._list or type(seq) is not int:
                raise UnsealError
            return _PagePosition(version, UUID(row_id), seq)
        except (UnsealError, ValueError, TypeError, AttributeError):
            raise Malformed(
                "cursor: is not one of this list: send next_cursor unchanged, or restart the list "
                "without one",
                field="cursor",
            ) from None


def trace_provenance(
    access: TenantDb, row_id: UUID, limit: int, cursor: str | None
) -> ProvenanceOut:
    """Trace what is derived from a visible event, or what a chain, a topic, a snapshot, a node or
    an edge of the graph is derived from. Further pages read the snapshot of the first. Raises
    NotFound, or Malformed for an invalid cursor."""
    pages = _CursorCodec(access, row_id)
    after = pages.decode(cursor) if cursor is not None else None
    origin = store.resolve_row_id(access, row_id)
    if origin is None:
        raise NotFound
    start = after or _PagePosition(origin.version, _FIRST, 0)
    answer = _ProvenancePageBuilder(access, row_id, origin, start, limit).build()
    if (position := answer[1]) is not None:
        answer[0].next_cursor = pages.encode(position)
    return answer[0]


class _ProvenancePageBuilder:
    def __init__(
        self,
        access: TenantDb,
        row_id: UUID,
        origin: ResolvedId,
        start: _PagePosition,
        limit: int,
    ) -> None:
        self._access, self._id, self._origin = access, row_id, origin
        self._start, self._limit = start, limit

    def build(self) -> tuple[ProvenanceOut, _PagePosition | None]:
        """The answer without its cursor, and the position where the next page begins."""
        match self._origin.kind:
            case "event":
                return self._make_event_page()
            case "chain":
                return self._make_chain_page()
            case "topic":
                return self._make_topic_page()
            case "node" | "graph_edge":
                return self._make_graph_item_page()
            case _:
                return self._make_snapshot_page()

    def _make_provenance_out(self, **lists: Sequence[BaseModel]) -> ProvenanceOut:
        names = ("topics", "chains", "events", "edges", "graph", "vectors", "scopes")
        fields = {name: list(lists.get(name, ())) for name in names}
        return ProvenanceOut.model_validate(
            {
                "kind": self._origin.kind,
                "id": self._id,
                "scope_id": self._origin.scope_id,
                "snapshot_version": self._start.version,
                "next_cursor": None,
                **fields,
            }
        )

    def _list_topics_above(
        self, slot: UUID | None, event_id: UUID | None
    ) -> Sequence[ProvenanceTopicSlot]:
        if self._start.version is None or self._origin.scope_id is None:
            return []
        return store.list_path_to_root(
            self._access,
            self._start.version,
            self._origin.scope_id,
            slot=slot,
            event_id=event_id,
        )

    def _list_chain_versions(
        self, chain_id: UUID | None, event_id: UUID | None
    ) -> Sequence[ProvenanceChainVersion]:
        return store.list_chain_versions(self._access, chain_id, event_id, _MAX_VERSIONS)

    def _find_next_position(
        self, rows: Sequence[Any], row_id: str, seq: str | None = None
    ) -> _PagePosition | None:
        """The position where the next page begins, if there is one more row than fits the page."""
        if len(rows) <= self._limit:
            return None
        last = rows[self._limit - 1]
        return _PagePosition(
            self._start.version, getattr(last, row_id), getattr(last, seq) if seq else 0
        )

    def _make_event_page(self) -> tuple[ProvenanceOut, _PagePosition | None]:
        scope_id = self._origin.scope_id
        assert scope_id is not None
        edges = store.list_citing_events(
            self._access, self._id, self._start.row_id, self._limit + 1
        )
        out = self._make_provenance_out(
            topics=self._list_topics_above(None, self._id),
            chains=self._list_chain_versions(None, self._id),
            edges=edges[: self._limit],
            graph=self._list_graph_items(self._id, None),
            vectors=store.list_vectors_of_event(self._access, scope_id, self._id),
        )
        return out, self._find_next_position(edges, "event_id")

    def _make_chain_page(self) -> tuple[ProvenanceOut, _PagePosition | None]:
        rows = store.list_chain_events(self._access, self._id, self._start.seq, self._limit + 1)
        out = self._make_provenance_out(
            topics=self._list_topics_above(self._id, None),
            chains=self._list_chain_versions(self._id, None),
            events=rows[: self._limit],
            graph=self._list_graph_items(None, self._id),
        )
        return out, self._find_next_position(rows, "chain_id", "seq")

    def _make_graph_item_page(self) -> tuple[ProvenanceOut, _PagePosition | None]:
        rows = store.list_cited_events(self._access, self._id, self._start.seq, self._limit + 1)
        return self._make_provenance_out(events=rows[: self._limit]), self._find_next_position(
            rows, "event_id", "seq"
        )

    def _list_graph_items(
        self, event_id: UUID | None, chain_id: UUID | None
    ) -> list[ProvenanceGraphItem]:
        rows = store.list_graph_items(self._access, event_id, chain_id, _MAX_GRAPH_ITEMS)
        return [_to_graph_item(row) for row in rows]

    def _make_topic_page(self) -> tuple[ProvenanceOut, _PagePosition | None]:
        slot, scope_id, version = self._origin.slot, self._origin.scope_id, self._start.version
        assert slot
        assert scope_id
        assert version is not None
        rows = store.list_topic_events(
            self._access,
            version,
            scope_id,
            slot,
            (self._start.row_id, self._start.seq),
            self._limit + 1,
        )
        out = self._make_provenance_out(
            topics=self._list_topics_above(slot, None), events=rows[: self._limit]
        )
        return out, self._find_next_position(rows, "chain_id", "seq")

    def _make_snapshot_page(self) -> tuple[ProvenanceOut, _PagePosition | None]:
        version = self._origin.version
        assert version is not None
        rows = store.list_snapshot_trees(self._access, version, self._start.row_id, self._limit + 1)
        return self._make_provenance_out(scopes=rows[: self._limit]), self._find_next_position(
            rows, "scope_id"
        )


def _to_graph_item(row: GraphItem) -> ProvenanceGraphItem:
    if row.kind == "graph_edge":
        return ProvenanceGraphItem(kind="graph_edge", id=str(row.row_id), type=row.type)
    row_id = format_node_id(cast("NodeType", row.type), row.row_id)
    return ProvenanceGraphItem(kind="node", id=row_id, type=row.type)
