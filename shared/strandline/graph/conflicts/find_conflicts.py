"""Find facts that contradict each other: similar by their vectors, and contradicting by a test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from strandline.embeddings.store_space_figures import read_thresholds
from strandline.errors import Invalid
from strandline.graph.conflicts import store_similar_facts
from strandline.graph.conflicts.schemas import (
    ComparedFactOut,
    ConflictOut,
    ConflictsOut,
    ConflictsRequest,
    ContradictionVerdictOut,
)
from strandline.graph.conflicts.store_similar_facts import FactFilter, SimilarPair, SimilarPairs
from strandline.graph.nodes.identity import format_node_id, hash_normalised_name, parse_node_id
from strandline.graph.nodes.store_joined import NodeAcrossScopes, read_nodes_across_scopes
from strandline.graph.search.search import NodeFinder, require_node_across_scopes
from strandline.llm.heuristic.contradiction import explain_contradiction
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import TaskContext
from strandline.recall.query_vector import embed_query
from strandline.tuning import Tuning

_MAX_MODEL_PAIRS = 10
"""How many of the most similar pairs are sent to the model."""


@dataclass(frozen=True)
class ContradictionJudge:
    """The language model that judges contradictions, where one is configured."""

    llm: LlmTasks
    task: TaskContext

    def judge_pair(
        self, first: str, second: str, participants: Sequence[str]
    ) -> ContradictionVerdictOut | None:
        """The model's verdict, or None if it gives no usable answer. The model sees the ids of only
        these participants."""
        task = replace(self.task, participants=tuple(participants))
        result = self.llm.contradicts(task, first, second)
        if result.fallback_reason is not None:
            return None
        return ContradictionVerdictOut(
            test="model", contradicts=result.value.contradicts, reason=None, model=result.model
        )


@dataclass(frozen=True)
class ComparedStatement:
    """The statement that facts are compared with."""

    content: str
    node: NodeAcrossScopes | None
    """None: the statement is not stored."""


@dataclass(frozen=True)
class _FactPair:
    """Two facts, the newer one first, or the unstored statement and a fact."""

    facts: tuple[ComparedFactOut, ComparedFactOut]
    similarity: float
    participants: frozenset[str]


def find_conflicts(
    finder: NodeFinder, judge: ContradictionJudge, request: ConflictsRequest, tuning: Tuning
) -> ConflictsOut:
    """The contradictions that a request asks for, most similar first. Raises NotFound for a node
    that is not in view, and Invalid for one that is not a fact."""
    space = finder.embedder.space
    threshold = request.threshold or read_thresholds(finder.access, space, tuning).conflict
    fact_filter = FactFilter(space, threshold, request.category)
    subject = _find_compared_statement(finder, request)
    degradations: list[str] = []
    if subject is None:
        similar = store_similar_facts.find_similar_among_newest(finder.access, fact_filter)
    else:
        vector, degradations = embed_query(
            finder.embedder, subject.content, finder.vector_timeout, "text"
        )
        similar = find_similar_facts(finder, subject, vector, fact_filter)
    judged = judge_pairs(finder, judge, similar, subject)
    is_cut = len(judged.conflicts) > request.limit
    return ConflictsOut(
        conflicts=judged.conflicts[: request.limit],
        candidates=judged.candidates[: request.limit],
        threshold=threshold,
        compared=len(similar.pairs),
        degraded=[*degradations, *judged.notes, *(["cut_by_limit"] if is_cut else [])],
    )


def find_similar_facts(
    finder: NodeFinder,
    subject: ComparedStatement,
    vector: Sequence[float] | None,
    fact_filter: FactFilter,
) -> SimilarPairs:
    """The facts in view that are similar to a statement but not identical to it; none without its
    vector."""
    if vector is None:
        return SimilarPairs(())
    return store_similar_facts.find_facts_similar_to(
        finder.access,
        vector,
        fact_filter,
        first_id=subject.node and subject.node.node_id,
        excluded_ids=subject.node.member_ids if subject.node else (),
        name_hash=hash_normalised_name(subject.content),
    )


@dataclass(frozen=True)
class JudgedPairs:
    """Similar pairs, in their order."""

    conflicts: list[ConflictOut]
    """Those that contradict each other by a test."""
    candidates: list[ConflictOut]
    """Those that only the caller can judge: the deterministic test found nothing, and no model was
    asked."""
    notes: list[str]
    """Codes for `degraded`."""


def judge_pairs(
    finder: NodeFinder,
    judge: ContradictionJudge,
    similar: SimilarPairs,
    subject: ComparedStatement | None,
) -> JudgedPairs:
    """Test pairs for contradictions. A pair without a first fact compares the subject with the
    second one."""
    conflicts: list[ConflictOut] = []
    candidates: list[ConflictOut] = []
    has_failed = False
    pairs = _read_facts_of_pairs(finder, similar.pairs, subject)
    for n, pair in enumerate(pairs):
        first, second = (fact.content for fact in pair.facts)
        reason = explain_contradiction(first, second)
        tests = [
            ContradictionVerdictOut(
                test="deterministic", contradicts=reason is not None, reason=reason, model=None
            )
        ]
        if judge.llm.has_model and n < _MAX_MODEL_PAIRS:
            verdict = judge.judge_pair(first, second, sorted(pair.participants))
            has_failed = has_failed or verdict is None
            tests += [verdict] if verdict else []
        if any(test.contradicts for test in tests):
            conflicts.append(_to_conflict_out(pair, tests))
        elif len(tests) == 1:
            candidates.append(_to_conflict_out(pair, tests))
    notes = {
        "no_model": not judge.llm.has_model,
        "model_failed": has_failed,
        "model_cut": judge.llm.has_model and len(pairs) > _MAX_MODEL_PAIRS,
        "facts_cut": similar.facts_cut,
        "pairs_cut": similar.pairs_cut,
    }
    return JudgedPairs(conflicts, candidates, [note for note, holds in notes.items() if holds])


def _find_compared_statement(
    finder: NodeFinder, request: ConflictsRequest
) -> ComparedStatement | None:
    if request.content is not None:
        return ComparedStatement(request.content, None)
    if request.node_id is None:
        return None
    if parse_node_id(request.node_id)[0] != "fact":
        raise Invalid("node_id: only facts are compared", field="node_id")
    node = require_node_across_scopes(finder.access, request.node_id, None)
    return ComparedStatement(node.name, node)


def _read_facts_of_pairs(
    finder: NodeFinder, similar: Sequence[SimilarPair], subject: ComparedStatement | None
) -> list[_FactPair]:
    """The pairs whose facts are still in view."""
    ids = dict.fromkeys(i for pair in similar for i in (pair.first_id, pair.second_id) if i)
    nodes = {
        node.node_id: node for node in read_nodes_across_scopes(finder.access, list(ids), None)
    }
    pairs = [_to_fact_pair(item, nodes, subject, finder.access.caller.viewer) for item in similar]
    return [pair for pair in pairs if pair is not None]


def _to_fact_pair(
    item: SimilarPair,
    nodes: Mapping[UUID, NodeAcrossScopes],
    subject: ComparedStatement | None,
    viewer: Sequence[str],
) -> _FactPair | None:
    second = nodes.get(item.second_id)
    if second is None:
        return None
    if item.first_id is None:
        assert subject is not None
        facts = _make_unstored_fact_out(subject.content), _to_fact_out(second)
        return _FactPair(facts, item.similarity, frozenset(second.participants).union(viewer))
    first = nodes.get(item.first_id)
    if first is None:
        return None
    newer, older = sorted(
        (first, second), key=lambda node: (node.updated_at, node.node_id), reverse=True
    )
    participants = frozenset(first.participants).union(second.participants)
    return _FactPair((_to_fact_out(newer), _to_fact_out(older)), item.similarity, participants)


def _to_fact_out(node: NodeAcrossScopes) -> ComparedFactOut:
    return ComparedFactOut(
        id=format_node_id(node.type, node.node_id),
        content=node.name,
        confidence=node.confidence,
        trust=node.trust,
        valid_from=node.valid_from,
        updated_at=node.updated_at,
    )


def _make_unstored_fact_out(content: str) -> ComparedFactOut:
    return ComparedFactOut(
        id=None, content=content, confidence=None, trust=None, valid_from=None, updated_at=None
    )


def _to_conflict_out(pair: _FactPair, tests: list[ContradictionVerdictOut]) -> ConflictOut:
    newer, older = pair.facts
    if newer.id is None:
        suggestion = (
            f"If the new statement holds, store it with `invalidates`: {older.id}; if not, store"
            " nothing."
        )
    else:
        suggestion = (
            f"If {newer.id}, the newer one, holds, invalidate {older.id} with a reason; if not, the"
            " other way round."
        )
    return ConflictOut(
        facts=[newer, older],
        similarity=round(pair.similarity, 4),
        tests=tests,
        suggestion=suggestion,
    )
