"""The verbs of the knowledge graph: `client.graph.…`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from strandline.client import answers
from strandline.client.errors import UnexpectedAnswerError
from strandline.client.graph_statements import FIELDS, NODE, GraphWriteVerbs, Time
from strandline.client.request_building import Call, DownloadTarget, VerbGroup
from strandline.client.scopes_and_payloads import measure_and_hash_file
from strandline.client.transport import AsyncCaller, SyncCaller
from strandline.client.verb_declarations import (
    BlockingStep,
    MultiRequestVerb,
    Steps,
    operation,
    pages,
    yield_step,
)
from strandline.client.whole_files import open_atomic_draft

if TYPE_CHECKING:
    from strandline.graph.nodes.node_types import NodeType


class GraphReadVerbs(VerbGroup):
    """Verbs that read the graph, on behalf of `user`, `agent` and `participants`."""

    @operation(f"GET {NODE}")
    def get(
        self,
        node_id: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        as_of: Time | None = None,
    ) -> answers.NodeOut:
        """A node, now or as it was known at a time. Raises NotFoundError."""
        ...

    @pages("GET /api/v1/graph/nodes", "NodePage.nodes", names={"page_size": "limit"})
    def nodes(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        type: NodeType | None = None,
        category: str | None = None,
        status: str | None = None,
        as_of: Time | None = None,
        archived: bool | None = None,
        valid_only: bool | None = None,
        sort: str | None = None,
        order: Literal["asc", "desc"] | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> answers.NodeOut:
        """Nodes by type, category and status, sorted."""
        ...

    @operation(f"GET {NODE}/history")
    def history(
        self,
        node_id: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> answers.NodeHistory:
        """The observations about a node, each with its speaker and time; a fact's revisions."""
        ...

    @operation("POST /api/v1/graph/search")
    def search(
        self,
        query: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        mode: Literal["semantic", "exact", "graph"] | None = None,
        types: Sequence[NodeType] | None = None,
        as_of: Time | None = None,
        archived: bool | None = None,
        limit: int | None = None,
    ) -> answers.SubgraphOut:
        """Nodes by meaning, by a part of a text, or along edges."""
        ...

    @operation("POST /api/v1/graph/topics/nearest")
    def nearest_topics(
        self,
        query: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        as_of: Time | None = None,
        archived: bool | None = None,
        limit: int | None = None,
    ) -> answers.SubgraphOut:
        """The topics that are nearest to a text."""
        ...

    @operation("POST /api/v1/graph/traverse")
    def traverse(
        self,
        node_id: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        traversal: str | None = None,
        hops: int | None = None,
        min_confidence: float | None = None,
        as_of: Time | None = None,
        archived: bool | None = None,
        limit: int | None = None,
    ) -> answers.SubgraphOut:
        """Follow edges from a node."""
        ...

    @operation("POST /api/v1/graph/conflicts")
    def conflicts(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        content: str | None = None,
        node_id: str | None = None,
        category: str | None = None,
        threshold: float | None = None,
        limit: int | None = None,
    ) -> answers.ConflictsOut:
        """Facts that contradict each other, a statement (`content`) or one fact (`node_id`)."""
        ...

    @operation("POST /api/v1/graph/analyze")
    def analyze(
        self,
        content: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        content_type: Literal["conversation", "statement", "decision", "event"] | None = None,
        limit: int | None = None,
    ) -> answers.AnalyzeBeforeStoringOut:
        """Find stored facts and events that concern a text, and what to consider before it is
        stored."""
        ...

    @operation("GET /api/v1/graph/merges/proposals")
    def merge_proposals(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        scope_id: UUID | str | None = None,
        min_similarity: float | None = None,
        archived: bool | None = None,
        limit: int | None = None,
    ) -> answers.MergeProposals:
        """Pairs of nodes that may represent the same thing."""
        ...

    @operation(f"GET {FIELDS}")
    def fields(
        self,
        topic_id: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        detail: Literal["minimal", "current"] | None = None,
        as_of: Time | None = None,
        limit: int | None = None,
        after_field: str | None = None,
    ) -> answers.TopicFields:
        """What a topic's fields hold, now or as it was known at a time."""
        ...

    @operation(f"GET {FIELDS}/{{field}}")
    def field(
        self,
        topic_id: str,
        field: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        as_of: Time | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> answers.FieldHistory:
        """One field with its revisions, newest first."""
        ...

    @pages(
        "GET /api/v1/graph/communities",
        "CommunitiesPage.communities",
        names={"page_size": "limit"},
    )
    def communities(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        node_id: str | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> answers.CommunityOut:
        """Communities of the graph, the largest first."""
        ...

    @operation("GET /api/v1/graph/communities/{community_id}")
    def community(
        self,
        community_id: UUID | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> answers.CommunityDetail:
        """A community's nodes, bridges and neighbours."""
        ...

    @operation("GET /api/v1/graph/status")
    def status(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
    ) -> answers.GraphStatus:
        """The graph's counts and size, the progress of promotion and analysis, and its use."""
        ...

    @operation("POST /api/v1/graph/exports")
    def export(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        scope_id: UUID | str | None = None,
        vectors: bool | None = None,
    ) -> answers.GraphExportFile:
        """Write the graph as JSON Lines; the answer has the address to fetch it from.
        `export_file` fetches it."""
        ...

    @MultiRequestVerb
    def export_file(
        self,
        path: Path | str,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        everybody: bool | None = None,
        scope_id: UUID | str | None = None,
        vectors: bool | None = None,
    ) -> Steps[answers.GraphExportFile]:
        """Write the graph into a file, which `import_file` reads. It is there whole or not at all.
        Raises UnexpectedAnswerError where it did not arrive as it was sent."""
        export = yield from yield_step(
            GraphReadVerbs.export.call(
                self,
                user=user,
                agent=agent,
                participants=participants,
                everybody=everybody,
                scope_id=scope_id,
                vectors=vectors,
            )
        )
        with open_atomic_draft(Path(path)) as draft:
            yield from yield_step(
                Call("GET", export.url, bytes, download=DownloadTarget(draft, export.bytes))
            )
            _, digest = yield from yield_step(BlockingStep(lambda: measure_and_hash_file(draft)))
            if digest != export.sha256:
                address = export.url.partition("?")[0]
                raise UnexpectedAnswerError(f"{address} is not what was exported.")
        return export


class Graph(GraphWriteVerbs, GraphReadVerbs, SyncCaller):
    """The knowledge graph of a synchronous client."""


class AsyncGraph(GraphWriteVerbs, GraphReadVerbs, AsyncCaller):
    """The knowledge graph of an asynchronous client."""
