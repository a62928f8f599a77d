"""The knowledge graph's contents about a question, as lines of a context's text."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from textwrap import shorten

from strandline.chains.slot_decisions import EarlierText, StatementInMessage, find_later_statements
from strandline.context.lines import KnowledgeLineSource, format_weekday_and_date
from strandline.db.database import TenantDb
from strandline.graph.nodes.identity import format_node_id
from strandline.graph.search.read_for_recall import RelevantKnowledge, read_relevant_knowledge
from strandline.graph.search.store_knowledge import RelevantNodeRow
from strandline.log.trust_ranks import least_trusted
from strandline.participants import display_name
from strandline.tuning import Tuning

_MAX_LINES = 20
"""The maximum number of lines, whatever the budget."""
_NEWER_CHARS = 120
"""The maximum length of a later statement in the line of what it may have changed."""
_VERBS = frozenset(
    {
        *("USES", "WORKS_ON", "BUILT_FOR_CLIENT", "STRUGGLES_WITH", "EXHIBITS"),
        *("EXPRESSED_INTEREST", "RELATES_TO", "related"),
    }
)
"""Edges that state something. The others only link a fact or a decision to its subject."""

type _Candidate = tuple[float | None, KnowledgeLineSource]
"""A line's source, with its cosine similarity to the question if both have vectors."""


def find_knowledge(
    access: TenantDb,
    tuning: Tuning,
    question: str,
    vector: Sequence[float] | None,
    space: str,
) -> list[KnowledgeLineSource]:
    """The currently valid facts, decisions and relations about a question: those closest to it
    first, then those with the greatest weight. One that a later statement in view may have changed,
    in whichever scope and folded or not, stands behind that statement. Empty if the tenant's
    long-term memory is disabled."""
    if not tuning.contexts_read_graph:
        return []
    knowledge = read_relevant_knowledge(
        access, question, vector, space, ("fact", "decision", "entity")
    )
    candidates = [
        *_make_sources_of_facts_and_decisions(knowledge),
        *_make_sources_of_relations(knowledge),
    ]
    candidates.sort(key=lambda item: -1.0 if item[0] is None else item[0], reverse=True)
    sources = [source for _, source in candidates[:_MAX_LINES]]
    later = find_later_statements(
        access, [EarlierText(one.known_id, None, one.since, one.text) for one in sources]
    )
    return [
        _merge_with_later_statement(source, later[source.known_id])
        if source.known_id in later
        else source
        for source in sources
    ]


def _merge_with_later_statement(
    source: KnowledgeLineSource, statement: StatementInMessage
) -> KnowledgeLineSource:
    """One line of both, so that neither is shown without the other."""
    event, earlier = (
        statement.event,
        f"{format_weekday_and_date(source.since)}: {source.text.rstrip('.')}",
    )
    newer = event.text[max(0, event.text.find(statement.statement.sentence)) :]
    newer = shorten(newer, _NEWER_CHARS, placeholder="…")
    return KnowledgeLineSource(
        known_id=source.known_id,
        since=event.said_at,
        kind="change",
        text=f"{display_name(event.speaker)}: {newer} (before, {earlier})",
        trust=least_trusted([event.origin, source.trust]),
        event_ids=[event.event_id, *(one for one in source.event_ids if one != event.event_id)],
        is_stated=source.is_stated,
    )


def _make_sources_of_facts_and_decisions(knowledge: RelevantKnowledge) -> Iterator[_Candidate]:
    for node in knowledge.nodes:
        if node.type == "fact" or node.type == "decision":
            source = KnowledgeLineSource(
                known_id=node.node_id,
                since=node.valid_from,
                kind=node.type,
                text=_describe_node(node),
                trust=node.trust,
                event_ids=node.event_ids,
                is_stated=node.is_stated,
            )
            yield node.similarity, source


def _describe_node(node: RelevantNodeRow) -> str:
    rationale = str(node.properties.get("rationale") or "") if node.type == "decision" else ""
    return f"{node.name}: {rationale}" if rationale else node.name


def _make_sources_of_relations(knowledge: RelevantKnowledge) -> Iterator[_Candidate]:
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
            source = KnowledgeLineSource(
                known_id=edge.id,
                since=edge.valid_from,
                kind="relation",
                text=f"{start.name} {verb} {end.name}" + (f": {nuance}" if nuance else ""),
                trust=edge.trust,
                event_ids=edge.event_ids,
                is_stated=edge.is_stated,
            )
            yield fmean(cosines) if cosines else None, source
