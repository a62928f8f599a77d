"""HTTP routes that find contradictions, and advise before something is stored."""

from strandline.config import get_settings
from strandline.errors import NotFound
from strandline.graph.conflicts.find_conflicts import ModelJudge, find_conflicts
from strandline.graph.conflicts.schemas import (
    AnalyzeOut,
    AnalyzeRequest,
    ConflictsOut,
    ConflictsRequest,
)
from strandline.graph.conflicts.storage_advice import analyze_before_storing
from strandline.graph.search.routes import make_finder
from strandline.graph.search.search import Finder
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.llm.types import TaskContext
from strandline.schemas import ParticipantsQuery


def post_conflicts(request: Request) -> Response:
    """Find facts that contradict each other: they are more similar than the embedding space's
    threshold, and the deterministic test or the model's test finds a contradiction. The answer
    names each test. Compares a statement or a fact with all facts in view; without either, compares
    the 500 facts that changed last with each other. Nothing is stored."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(ConflictsRequest)
    finder = make_finder(request, query, body.participants)
    answer = find_conflicts(finder, _make_judge(request, finder), body, get_settings().tuning)
    _record_model_calls(request, finder)
    request.metrics |= {"ConflictsFound": len(answer.conflicts)}
    return json_response(answer)


def post_analyze(request: Request) -> Response:
    """Find stored facts and events that concern a text: related nodes, contradictions if it is a
    statement, and advice before it is stored. Nothing is stored."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(AnalyzeRequest)
    finder = make_finder(request, query, body.participants)
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


def _make_judge(request: Request, finder: Finder) -> ModelJudge:
    task = TaskContext(
        tenant=finder.access.caller.tenant,
        # Not the scope: these calls must not use up the rate limit of the scope's fold.
        subject=request.principal.user or f"key:{request.principal.key_id}",
        participants=finder.access.caller.viewer,
        deadline=request.deadline,
    )
    return ModelJudge(request.resources.llm, task)


def _record_model_calls(request: Request, finder: Finder) -> None:
    """Store the records and metrics of the model calls."""
    llm = request.resources.llm
    if llm.has_model:
        llm.store_call_records(finder.access)
        request.metrics |= llm.take_metrics()


ROUTES = {
    "POST /api/v1/graph/analyze": Route(
        post_analyze, "read", {200: AnalyzeOut}, query=ParticipantsQuery, body=AnalyzeRequest
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
