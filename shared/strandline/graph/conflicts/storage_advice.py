"""Find stored facts and events that concern a text, and advise on storing it."""

from collections.abc import Sequence

from strandline.embeddings.similarity_thresholds import thresholds_for
from strandline.graph.conflicts.find_conflicts import (
    ComparedStatement,
    ModelJudge,
    find_similar_facts,
    judge_pairs,
)
from strandline.graph.conflicts.schemas import (
    Advice,
    AdviceOut,
    AnalyzeOut,
    AnalyzeRequest,
    ConflictOut,
)
from strandline.graph.conflicts.store_similar_facts import FactFilter
from strandline.graph.nodes.identity import hash_name
from strandline.graph.nodes.node_types import NODE_TYPES
from strandline.graph.search.schemas import FoundNode
from strandline.graph.search.search import ALL_TYPES, Finder, read_matches
from strandline.graph.search.store import NodeFilter
from strandline.log.trust_ranks import trust_rank
from strandline.recall.recall import embed_query
from strandline.tuning import Tuning

_NEAR_TOPIC = 0.4
"""The least similarity at which a topic is suggested."""


def analyze_before_storing(
    finder: Finder, judge: ModelJudge, request: AnalyzeRequest, tuning: Tuning
) -> AnalyzeOut:
    """Find stored nodes that concern a text, facts that contradict it, and advice on storing it.
    Stores nothing."""
    vector, degradations = embed_query(finder.embedder, request.content, finder.vector_timeout)
    narrowing = NodeFilter(ALL_TYPES)
    matches = finder.find_by(request.content, vector, narrowing)
    nodes = read_matches(finder.access, matches, narrowing, request.limit)
    subject = ComparedStatement(request.content, None)
    space = finder.embedder.space
    fact_filter = FactFilter(space, thresholds_for(space, tuning).conflict)
    similar = find_similar_facts(finder, subject, vector, fact_filter)
    judged = judge_pairs(finder, judge, similar, subject)
    return AnalyzeOut(
        related=nodes,
        conflicts=judged.conflicts,
        candidates=judged.candidates[: request.limit],
        weigh=_list_advice(request.content, nodes, judged.conflicts),
        store_as=[f"{name}: {spec.store_as}" for name, spec in NODE_TYPES.items()],
        degraded=[*degradations, *judged.notes],
    )


def _list_advice(
    content: str, nodes: Sequence[FoundNode], conflicts: Sequence[ConflictOut]
) -> list[AdviceOut]:
    """The advice on storing a text, the most important first."""
    known_hash = hash_name(content)
    same_ids = [node.id for node in nodes if hash_name(node.name) == known_hash]
    fact_ids = [fact.id for c in conflicts for fact in c.facts if fact.id]
    entity_ids = [
        node.id
        for node in nodes
        if node.type == "entity" and "name" in node.why and node.id not in same_ids
    ]
    topics = [
        node.id for node in nodes if node.type == "topic" and (node.similarity or 0) >= _NEAR_TOPIC
    ]
    low_trust_ids = [node.id for node in nodes if trust_rank(node.trust) < trust_rank("agent")]
    findings: list[tuple[Advice, Sequence[str], str]] = [
        (
            "contradicts",
            fact_ids,
            "It contradicts known facts. Invalidate those that no longer hold.",
        ),
        (
            "known_already",
            same_ids,
            "It is known already. Stating it again only adds weight.",
        ),
        ("known_names", entity_ids, "It names known entities. Add relationships to them."),
        ("near_topic", topics, "It is near known topics. Add a relationship to one of them."),
        ("low_trust", low_trust_ids, "These come from tools or documents. Give them less weight."),
    ]
    advice = [
        AdviceOut(code=code, text=text, node_ids=list(dict.fromkeys(ids)))
        for code, ids, text in findings
        if ids
    ]
    if not nodes:
        text = "Nothing related is known. If it will matter later, it is worth storing."
        advice.append(AdviceOut(code="nothing_related", text=text, node_ids=[]))
    return advice
