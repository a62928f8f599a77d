"""The verbs that state something to the knowledge graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias
from uuid import UUID

from strandline.client import answers
from strandline.client.memory import Fields
from strandline.client.request_building import KEEP, KeepUnchanged, VerbGroup
from strandline.client.scopes_and_payloads import Progress, upload_unless_stored
from strandline.client.verb_declarations import (
    BlockingStep,
    MultiRequestVerb,
    Steps,
    operation,
    yield_step,
)

Time: TypeAlias = datetime | float | str

NODE = "/api/v1/graph/nodes/{node_id}"
FIELDS = "/api/v1/graph/topics/{topic_id}/fields"
_INLINE_BYTES = 1024 * 1024
"""A larger file is uploaded. A request holds 4 MiB, in which JSON escapes every quote."""


class GraphWriteVerbs(VerbGroup):
    """Verbs that state something. `user`, `agent` and `participants` name everybody who takes part:
    the exact set determines the scope."""

    @operation("POST /api/v1/graph/nodes")
    def add(
        self,
        nodes: Sequence[Fields],
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        speaker: str | None = None,
        role: Literal["user", "agent"] | None = None,
        idempotency_key: str | None = None,
    ) -> answers.CreateNodesAnswer:
        """State up to 50 facts, decisions, entities, events and topics, with their
        relationships."""
        ...

    @operation(f"PATCH {NODE}")
    def update(
        self,
        node_id: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        speaker: str | None = None,
        role: Literal["user", "agent"] | None = None,
        content: str | None = None,
        title: str | None = None,
        name: str | None = None,
        category: str | None = None,
        kind: str | None = None,
        status: str | None = None,
        rationale: str | None = None,
        alternatives: Sequence[str] | None = None,
        description: str | KeepUnchanged | None = KEEP,
        event_date: Time | KeepUnchanged | None = KEEP,
        confidence: float | None = None,
        archived: bool | None = None,
        idempotency_key: str | None = None,
    ) -> answers.StoredChange:
        """Change a node's fields, or archive it. `description=None` clears it."""
        ...

    @operation(f"POST {NODE}/invalidate")
    def invalidate(
        self,
        node_id: str,
        *,
        reason: str,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        speaker: str | None = None,
        role: Literal["user", "agent"] | None = None,
        replacement: Fields | None = None,
        replacement_id: str | None = None,
        valid_from: Time | None = None,
        idempotency_key: str | None = None,
    ) -> answers.InvalidatedFact:
        """End a fact with a reason, and state what holds instead."""
        ...

    @operation("POST /api/v1/graph/edges")
    def relate(
        self,
        edges: Sequence[Fields],
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        speaker: str | None = None,
        role: Literal["user", "agent"] | None = None,
        idempotency_key: str | None = None,
    ) -> answers.RelationsAnswer:
        """State up to 50 edges between nodes."""
        ...

    @operation("POST /api/v1/graph/edges/{edge_id}/end")
    def end_edge(
        self,
        edge_id: UUID | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        speaker: str | None = None,
        role: Literal["user", "agent"] | None = None,
        reason: str | None = None,
        valid_to: Time | None = None,
        idempotency_key: str | None = None,
    ) -> answers.EndedEdge:
        """End an edge."""
        ...

    @operation("POST /api/v1/graph/imports")
    def post_import(
        self, *, content: str | None = None, cid: str | None = None
    ) -> answers.GraphImportResult:
        """The request that `import_file` sends: the file as a text, or as the CID of an upload."""
        ...

    @MultiRequestVerb
    def import_file(
        self, path: Path | str, *, progress: Progress | None = None
    ) -> Steps[answers.GraphImportResult]:
        """Store the graph of an export file: all of it or none, and nothing twice. A large file is
        uploaded first; `progress(sent, size)` is called as that goes. Raises InvalidFieldError,
        which names the line, for a file that is not whole."""
        file = Path(path)
        size = yield from yield_step(BlockingStep(lambda: file.stat().st_size))
        if size > _INLINE_BYTES:
            cid = yield from upload_unless_stored(
                self, file, "application/jsonl", file.name, progress
            )
            return (yield from yield_step(GraphWriteVerbs.post_import.call(self, cid=cid)))
        # bytes that are not UTF-8 fail the check of the line's hash
        content = yield from yield_step(BlockingStep(lambda: file.read_text("utf-8", "replace")))
        answer = yield from yield_step(GraphWriteVerbs.post_import.call(self, content=content))
        if progress is not None:
            progress(size, size)
        return answer

    @operation("POST /api/v1/graph/merges")
    def merge(
        self,
        *,
        from_id: str,
        into_id: str,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        speaker: str | None = None,
        role: Literal["user", "agent"] | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> answers.StoredMerge:
        """Merge two nodes that represent the same thing."""
        ...

    @operation("POST /api/v1/graph/merges/refusals")
    def refuse_merge(
        self,
        *,
        from_id: str,
        into_id: str,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        speaker: str | None = None,
        role: Literal["user", "agent"] | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> answers.RefusedMerge:
        """State that two nodes are not the same: it is not proposed again to merge them."""
        ...

    @operation("POST /api/v1/graph/merges/{merge_id}/undo")
    def undo_merge(
        self,
        merge_id: UUID | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        speaker: str | None = None,
        role: Literal["user", "agent"] | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> answers.UndoneMerge:
        """Undo a merge."""
        ...

    @operation(f"POST {FIELDS}/{{field}}")
    def set_field(
        self,
        topic_id: str,
        field: str,
        value: Any,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        speaker: str | None = None,
        role: Literal["user", "agent"] | None = None,
        valid_from: Time | None = None,
        why_changed: str | None = None,
        impact_expected: str | None = None,
        field_type: str | None = None,
        ref_topic_id: str | KeepUnchanged | None = KEEP,
        idempotency_key: str | None = None,
    ) -> answers.StoredRevision:
        """State the value of a topic's field; None states that it has no value any more."""
        ...
