"""Answer a references query from the topic index: pin a snapshot, walk its trees, add the fresh
tail."""

from collections.abc import Callable, Sequence
from datetime import datetime

from strandline.db.database import TenantDb
from strandline.topics import answer_rendering, store_references_query
from strandline.topics.answer_budget import AnswerLayout, AnswerPartCandidates
from strandline.topics.answer_lines import AnswerLines
from strandline.topics.answer_plan import AnswerLeftOutCounts, AnswerManifest, ManifestNode
from strandline.topics.answer_rendering import AnswerContents
from strandline.topics.outline_text import RenderedOutline, group_by
from strandline.topics.schemas_references import ReferencesOut
from strandline.topics.selection import (
    AnswerSelection,
    HitsPlacedInTrees,
    ReferencesQuestion,
    find_hits_and_their_places,
    select_events_by_beam,
    select_outline,
)

type ModelWalk = Callable[[ReferencesQuestion, HitsPlacedInTrees], AnswerSelection]
"""Selects the topics with a language model."""


def answer_references_query(
    question: ReferencesQuestion, now: datetime, model_walk: ModelWalk | None
) -> tuple[ReferencesOut, bool]:
    """Answer a question from the active snapshot and the fresh tail; without a question, return an
    outline of both. Also returns whether the use of its events was recorded. `now` is the server's
    time; `model_walk` is called if the request asks for it."""
    request = question.request
    if request.query is None:
        selection = select_outline(question)
    elif request.walk == "model":
        hits = find_hits_and_their_places(question, with_roots=True)
        if model_walk is None:
            selection = select_events_by_beam(question, hits)
            selection.degraded.append("no_model")
        else:
            selection = model_walk(question, hits)
    else:
        selection = select_events_by_beam(
            question, find_hits_and_their_places(question, with_roots=False)
        )
    contents = _read_contents_and_drop_erased(question.access, selection)
    plan, outline = _fit_answer_to_budget(question, selection, contents, now)
    contents = _with_cited_events(question.access, plan, contents)
    record = answer_rendering.store_answer_and_use(
        question.access,
        plan,
        request,
        selection.read.pg_snapshot,
        selection.list_used_event_ids(plan.events),
    )
    if not record.is_repeatable:
        plan = plan.model_copy(update={"degraded": (*plan.degraded, "not_repeatable")})
    answer = answer_rendering.render_answer(
        plan, contents, selection.snapshot, request, record.token, outline
    )
    return answer, record.is_use_recorded


def _read_contents_and_drop_erased(access: TenantDb, selection: AnswerSelection) -> AnswerContents:
    """Read the texts of everything that may be shown. Anything erased meanwhile is removed from the
    selection."""
    contents = answer_rendering.read_answer_contents(
        access,
        [node.node_id for node in selection.nodes.values()],
        [event.event_id for event in selection.events],
        {scope_id: row.participants or [] for scope_id, row in selection.scopes.items()},
    )
    selection.nodes = {
        slot: node for slot, node in selection.nodes.items() if node.node_id in contents.nodes
    }
    selection.events = [
        event
        for event in selection.events
        if event.event_id in contents.events
        and (event.slot is None or event.slot in selection.nodes)
    ]
    return contents


def _fit_answer_to_budget(
    question: ReferencesQuestion,
    selection: AnswerSelection,
    contents: AnswerContents,
    now: datetime,
) -> tuple[AnswerManifest, RenderedOutline]:
    """Choose the part of the selection that the budget holds, and render its outline."""
    request = question.request
    texts = contents.to_answer_texts(
        list(selection.nodes.values()),
        selection.events,
        keeps_summaries=request.format == "json",
    )
    candidates = AnswerPartCandidates(selection.events, selection.nodes, request.query is not None)
    lines = AnswerLines(texts, request.budget)
    layout = AnswerLayout(candidates, lines)
    layout.fill_budget()
    while True:
        plan = _make_answer_manifest(question, selection, layout, now)
        plan = plan.model_copy(
            update={"nodes": tuple(_nodes_with_first_events(question.access, plan))}
        )
        outline = RenderedOutline(plan, lines)
        is_within = len(outline.text.encode()) <= lines.budget_bytes
        if is_within or not layout.drop_last_event_or_summary():
            return plan, outline


def _make_answer_manifest(
    question: ReferencesQuestion, selection: AnswerSelection, layout: AnswerLayout, now: datetime
) -> AnswerManifest:
    search, nodes, events = selection.search, layout.list_shown_nodes_and_ancestors(), layout.events
    degradations = selection.degraded
    if search is not None:
        degradations = list(
            dict.fromkeys(
                [*search.list_degradations(question.request.min_relevance), *degradations]
            )
        )
    if search is not None and not search.calibration.is_calibrated:
        nodes = [node.model_copy(update={"relevance": None}) for node in nodes]
        events = [event.model_copy(update={"relevance": None}) for event in events]
    scope_ids = {node.scope_id for node in nodes} | {event.scope_id for event in events}
    has_question = search is not None
    with_text = [
        n for n in nodes if layout.texts.topics[n.slot].summary and n.slot in layout.headings
    ]
    return AnswerManifest(
        version=selection.snapshot.version if selection.snapshot else None,
        answered_at=now,
        known=search.answer_probability if search else None,
        space=search.space if search else None,
        degraded=tuple(degradations),
        not_yet_embedded=search.unembedded_event_count if search else 0,
        walk=selection.walk,
        cut=AnswerLeftOutCounts(
            events=len(selection.events) - len(layout.events),
            topics=0 if has_question else len(selection.nodes) - len(nodes),
            summaries=sum(not node.has_summary for node in with_text),
            shortened=layout.shortened_count,
            width=selection.cut_by_width,
            time=selection.is_late,
        ),
        scopes=tuple(s for s in selection.manifest_scopes if s.scope_id in scope_ids),
        nodes=tuple(nodes),
        events=tuple(events),
    )


def _nodes_with_first_events(access: TenantDb, plan: AnswerManifest) -> Sequence[ManifestNode]:
    """The nodes of a plan. A node without a shown event below it gets one of its events to cite."""
    below = group_by((node.parent, node) for node in plan.nodes)
    slots_of_events = {event.slot for event in plan.events}

    def has_events(node: ManifestNode) -> bool:
        return node.slot in slots_of_events or any(map(has_events, below[node.slot]))

    bare = [(node.scope_id, node.slot) for node in plan.nodes if not has_events(node)]
    first_events = store_references_query.read_first_event_of_slots(access, plan.version or 0, bare)
    return [
        node.model_copy(update={"first_event": first_events.get(node.slot)}) for node in plan.nodes
    ]


def _with_cited_events(
    access: TenantDb, plan: AnswerManifest, contents: AnswerContents
) -> AnswerContents:
    """The contents, with those of the cited events added."""
    missing = [i for i in plan.event_ids if i not in contents.events]
    if not missing:
        return contents
    citations = answer_rendering.read_answer_contents(access, [], missing, contents.participants)
    return AnswerContents(
        contents.nodes, {**contents.events, **citations.events}, contents.participants
    )
