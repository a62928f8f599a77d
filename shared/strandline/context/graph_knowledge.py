"""The knowledge graph's contents about a question, as lines of a context's text."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from strandline.context.lines import KnowledgeSource
from strandline.db.database import TenantDb
from strandline.graph.nodes.identity import format_node_id
from strandline.graph.search.read_for_recall import RelevantKnowledge, read_knowledge
from strandline.graph.search.store_knowledge import RelevantNodeRow
from strandline.tuning import Tuning

_MAX_LINES = 20
"""The maximum number of lines, whatever the budget."""
_VERBS = frozenset(
    {
        *("USES", "WORKS_ON", "BUILT_FOR_CLIENT", "STRUGGLES_WITH", "EXHIBITS"),
        *("EXPRESSED_INTEREST", "RELATES_TO", "related"),
    }
)
"""Edges that state something. The others only link a fact or a decision to its subject."""

type _Candidate = tuple[float | None, KnowledgeSource]
"""A line's source, with its cosine similarity to the question if both have vectors."""


def find_knowledge(
    access: TenantDb,
    tuning: Tuning,
    question: str,
    vector: Sequence[float] | None,
    space: str,
) -> list[KnowledgeSource]:
    """The currently valid facts, decisions and relations about a question: those closest to it
    first, then those with the greatest weight. Empty if the tenant's long-term memory is
    disabled."""
    if not tuning.contexts_read_graph:
        return []
    knowledge = read_knowledge(access, question, vector, space, ("fact", "decision", "entity"))
    candidates = [*_from_nodes(knowledge), *_from_edges(knowledge)]
    candidates.sort(key=lambda item: -1.0 if item[0] is None else item[0], reverse=True)
    return [source for _, source in candidates[:_MAX_LINES]]


def _from_nodes(knowledge: RelevantKnowledge) -> Iterator[_Candidate]:
    for node in knowledge.nodes:
        if node.type == "fact" or node.type == "decision":
            source = KnowledgeSource(
                known_id=node.node_id,
                since=node.valid_from,
                kind=node.type,
                text=_describe_node(node),
                trust=node.trust,
                event_ids=node.event_ids,
            )
            yield node.similarity, source


def _describe_node(node: RelevantNodeRow) -> str:
    rationale = str(node.properties.get("rationale") or "") if node.type == "decision" else ""
    return f"{node.name}: {rationale}" if rationale else node.name


def _from_edges(knowledge: RelevantKnowledge) -> Iterator[_Candidate]:
    """Relations between entities. Their similarity to the question is that of the entities."""
    entities = {
        format_node_id(node.type, node.node_id): node
        for node in knowledge.nodes
        if node.type == "entity"
    }
    for edge in knowledge.edges:
        start, end = entities.get(edge.from_id), entities.get(edge.to_id)
        if start and end and edge.type in _VERBS:
            cosines = [node.similarity for node in (start, end) if node.similarity is not None]
            verb = edge.label or edge.type.lower().replace("_", " ")
            nuance = edge.properties.get("nuance")
            source = KnowledgeSource(
                known_id=edge.id,
                since=edge.valid_from,
                kind="relation",
                text=f"{start.name} {verb} {end.name}" + (f": {nuance}" if nuance else ""),
                trust=edge.trust,
                event_ids=edge.event_ids,
            )
            yield fmean(cosines) if cosines else None, source
