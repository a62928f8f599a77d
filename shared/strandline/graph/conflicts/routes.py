"""HTTP routes that find contradictions, and advise before something is stored, from the facts and
events that concern the text."""

from collections.abc import Sequence

from strandline.config import get_settings
from strandline.embeddings.store_space_figures import read_thresholds
from strandline.errors import NotFound
from strandline.graph.conflicts.find_conflicts import (
    ComparedStatement,
    ContradictionJudge,
    find_conflicts,
    find_similar_facts,
    judge_pairs,
)
from strandline.graph.conflicts.schemas import (
    Advice,
    AnalyzeBeforeStoringOut,
    AnalyzeBeforeStoringRequest,
    ConflictOut,
    ConflictsOut,
    ConflictsRequest,
    StoringAdviceOut,
)
from strandline.graph.conflicts.store_similar_facts import FactFilter
from strandline.graph.nodes.identity import hash_normalised_name
from strandline.graph.nodes.node_types import NODE_TYPES
from strandline.graph.search.routes import make_node_finder
from strandline.graph.search.schemas import FoundNode
from strandline.graph.search.search import ALL_TYPES, NodeFinder, read_matched_nodes
from strandline.graph.search.store import NodeFilter
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.llm.types import TaskContext
from strandline.log.trust_ranks import trust_rank
from strandline.recall.query_vector import embed_query
from strandline.schemas import ParticipantsQuery
from strandline.tuning import Tuning

_NEAR_TOPIC = 0.4
"""The least similarity at which a topic is suggested."""


def analyze_before_storing(
    finder: NodeFinder,
    judge: ContradictionJudge,
    request: AnalyzeBeforeStoringRequest,
    tuning: Tuning,
) -> AnalyzeBeforeStoringOut:
    """Find stored nodes that concern a text, facts that contradict it, and advice on storing it.
    Stores nothing."""
    vector, degradations = embed_query(
        finder.embedder, request.content, finder.vector_timeout, "text"
    )
    node_filter = NodeFilter(ALL_TYPES)
    matches = finder.find_nodes_by_vector(request.content, vector, node_filter)
    nodes = read_matched_nodes(finder.access, matches, node_filter, request.limit)
    subject = ComparedStatement(request.content, None)
    space = finder.embedder.space
    threshold = read_thresholds(finder.access, space, tuning).conflict
    fact_filter = FactFilter(space, threshold)
    similar = find_similar_facts(finder, subject, vector, fact_filter)
    judged = judge_pairs(finder, judge, similar, subject)
    return AnalyzeBeforeStoringOut(
        related=nodes,
        conflicts=judged.conflicts,
        candidates=judged.candidates[: request.limit],
        weigh=_list_advice(request.content, nodes, judged.conflicts),
        store_as=[f"{name}: {spec.store_as}" for name, spec in NODE_TYPES.items()],
        degraded=[*degradations, *judged.notes],
    )


def _list_advice(
    content: str, nodes: Sequence[FoundNode], conflicts: Sequence[ConflictOut]
) -> list[StoringAdviceOut]:
    """The advice on storing a text, the most important first."""
    known_hash = hash_normalised_name(content)
    same_ids = [node.id for node in nodes if hash_normalised_name(node.name) == known_hash]
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
        StoringAdviceOut(code=code, text=text, node_ids=list(dict.fromkeys(ids)))
        for code, ids, text in findings
        if ids
    ]
    if not nodes:
        text = "Nothing related is known. If it will matter later, it is worth storing."
        advice.append(StoringAdviceOut(code="nothing_related", text=text, node_ids=[]))
    return advice


def post_conflicts(request: Request) -> Response:
    """Find facts that contradict each other: they are more similar than the embedding space's
    threshold, and the deterministic test or the model's test finds a contradiction. The answer
    names each test. Compares a statement or a fact with all facts in view; without either, compares
    the 500 facts that changed last with each other. Nothing is stored."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(ConflictsRequest)
    finder = make_node_finder(request, query, body.participants)
    answer = find_conflicts(finder, _make_judge(request, finder), body, get_settings().tuning)
    _record_model_calls(request, finder)
    request.metrics |= {"ConflictsFound": len(answer.conflicts)}
    return json_response(answer)


def post_analyze(request: Request) -> Response:
    """Find stored facts and events that concern a text: related nodes, contradictions if it is a
    statement, and advice before it is stored. Nothing is stored."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(AnalyzeBeforeStoringRequest)
    finder = make_node_finder(request, query, body.participants)
    answer = analyze_before_storing(
        finder, _make_judge(request, finder), body, get_settings().tuning
    )
    _record_model_calls(request, finder)
    request.metrics |= {
        "GraphNodesRead": len(answer.related),
        "GraphReadsEmpty": int(not answer.related),
        "ConflictsFound": len(answer.conflicts),
    }
    return json_response(answer)


def _make_judge(request: Request, finder: NodeFinder) -> ContradictionJudge:
    task = TaskContext(
        tenant=finder.access.caller.tenant,
        # Not the scope: these calls must not use up the rate limit of the scope's fold.
        subject=request.principal.user or f"key:{request.principal.key_id}",
        participants=finder.access.caller.viewer,
        deadline=request.deadline,
    )
    return ContradictionJudge(request.resources.llm, task)


def _record_model_calls(request: Request, finder: NodeFinder) -> None:
    """Store the records and metrics of the model calls."""
    llm = request.resources.llm
    if llm.has_model:
        llm.store_call_records(finder.access)
        request.metrics |= llm.take_metrics()


ROUTES = {
    "POST /api/v1/graph/analyze": Route(
        post_analyze,
        "read",
        {200: AnalyzeBeforeStoringOut},
        query=ParticipantsQuery,
        body=AnalyzeBeforeStoringRequest,
    ),
    "POST /api/v1/graph/conflicts": Route(
        post_conflicts,
        "read",
        {200: ConflictsOut},
        query=ParticipantsQuery,
        body=ConflictsRequest,
        errors=(NotFound,),
    ),
}
