"""End the facts that a later statement of the same scope replaces: "We moved to Dresden" ends
"Jonas lives in Leipzig".

The event that states the change is the source of the end, and cites the fact's own events too: if
either is erased, the end goes, and the fact holds again. Whichever chain is promoted first, the
same facts end.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from strandline.chains.slot_decisions import StatementInMessage, list_self_statements
from strandline.db.database import TenantDb
from strandline.graph.nodes.observations import (
    UPKEEP,
    EdgeObservation,
    NodeObservation,
    ObservationSource,
)
from strandline.graph.nodes.store_observations import write_observations
from strandline.graph.promotion.extraction_checks import ChainObservations
from strandline.graph.promotion.store import ChainToPromote, EvidenceEvent
from strandline.llm.heuristic.slots import (
    SlotStatement,
    judge_by_later_statements,
    read_slot_of_fact,
)
from strandline.llm.heuristic.statements import capitalize_display_name
from strandline.log.trust_ranks import least_trusted

_MAX_FACTS = 500
"""How many of the newest facts about one person are read."""


@dataclass(frozen=True)
class CurrentChainFactRow:
    """A fact that holds, and that chains alone have stated."""

    node_id: UUID
    name: str
    event_ids: list[UUID]
    """The events that it cites."""
    said_at: datetime
    """When the last of them was said."""
    trust: str


def list_current_chain_facts_about(
    access: TenantDb, scope_id: UUID, subjects: Sequence[str]
) -> Sequence[CurrentChainFactRow]:
    """The facts of a scope about these people that hold and that no caller has stated, by the
    compared forms of their names."""
    return access.fetch(
        CurrentChainFactRow,
        """
        select g.node_id, g.name, cited.event_ids, cited.said_at, g.trust
        from unnest(%(subjects)s::text[]) s (name)
        cross join lateral (
            select g.node_id, g.name, g.trust from graph_nodes g
            where g.tenant_id = current_tenant() and g.scope_id = %(scope_id)s and g.type = 'fact'
                and g.valid_to is null and not g.archived
                and (starts_with(lower(g.name), s.name || ' ')
                    or starts_with(lower(g.name), s.name || '''s '))
            order by g.updated_at desc limit %(max_facts)s) g
        cross join lateral (
            select array_agg(distinct e.event_id) as event_ids,
                max(coalesce(e.occurred_at, e.recorded_at)) as said_at,
                bool_and(o.source_version is not null) as is_derived_from_listed_word
            from graph_observations o
            join graph_sources c on c.tenant_id = o.tenant_id and c.target_id = o.target_id
                and c.source_id = o.source_id
            cross join lateral (
                select e.event_id, e.occurred_at, e.recorded_at from events e
                where e.tenant_id = c.tenant_id and e.event_id = c.event_id offset 0) e
            where o.tenant_id = current_tenant() and o.target_id = g.node_id
                and not o.patch ? 'upkeep') cited
        where cited.is_derived_from_listed_word
        """,
        {"scope_id": scope_id, "subjects": list(subjects), "max_facts": _MAX_FACTS},
    )


_MAX_REASON = 400


class _FactWithStatement(NamedTuple):
    row: CurrentChainFactRow
    statement: SlotStatement


def end_replaced_facts(
    access: TenantDb,
    chain: ChainToPromote,
    promotion: ChainObservations,
    evidence: Mapping[int, EvidenceEvent],
) -> int:
    """End the facts of the chain's scope about whom the chain speaks, as far as a later statement
    replaces them. Returns how many. In the transaction that writes the chain's part of the
    graph."""
    subjects = _list_people_of_chain(promotion, evidence.values())
    statements = list_self_statements(access, subjects, chain.scope_id) if subjects else []
    if not any(one.statement.is_change for one in statements):
        return 0
    facts = [
        _FactWithStatement(row, statement)
        for row in list_current_chain_facts_about(access, chain.scope_id, sorted(subjects))
        if (statement := read_slot_of_fact(row.name)) is not None
    ]
    ends = [
        (fact, end)
        for fact in facts
        if (end := _find_ending_statement(fact, statements)) is not None
    ]
    nodes: list[NodeObservation] = []
    edges: list[EdgeObservation] = []
    for fact, end in ends:
        source = _make_source_of_ending(chain, fact, end)
        reason = f"{capitalize_display_name(end.event.speaker)}: {end.statement.sentence}"[
            :_MAX_REASON
        ]
        replacement = _find_replacing_fact(facts, fact, end)
        if replacement is not None:
            edges.append(
                EdgeObservation(
                    *(source, len(nodes) + 1, len(nodes), "invalidates"), patch={"reason": reason}
                )
            )
        patch = {**UPKEEP, "valid_to": end.event.said_at.isoformat(), "reason": reason}
        nodes.append(_make_fact_observation(source, fact, patch))
        if replacement is not None:
            nodes.append(_make_fact_observation(source, replacement, UPKEEP))
    if nodes:
        write_observations(access, nodes, edges)
    return len(ends)


def _list_people_of_chain(
    promotion: ChainObservations, evidence: Iterable[EvidenceEvent]
) -> set[str]:
    """The people of whom the chain states something, or who speak in it."""
    facts = [read_slot_of_fact(node.name) for node in promotion.nodes if node.type == "fact"]
    speakers = {
        capitalize_display_name(event.speaker).casefold()
        for event in evidence
        if event.speaker and event.role == "user"
    }
    return speakers | {fact.subject for fact in facts if fact is not None}


def _find_ending_statement(
    fact: _FactWithStatement, statements: Sequence[StatementInMessage]
) -> StatementInMessage | None:
    """The statement that ends a fact, if the last word on its slot does."""
    later = [one for one in statements if one.was_said_after(fact.row.said_at)]
    verdict, place = judge_by_later_statements(
        fact.statement, [one.statement for one in later]
    ) or (None, 0)
    return later[place] if verdict == "ends" else None


def _find_replacing_fact(
    facts: Sequence[_FactWithStatement], ended: _FactWithStatement, end: StatementInMessage
) -> _FactWithStatement | None:
    """The fact that the ending event states in the same slot."""
    for fact in facts:
        is_same_slot = fact.statement[:2] == ended.statement[:2]
        if is_same_slot and end.event.event_id in fact.row.event_ids and fact is not ended:
            return fact
    return None


def _make_source_of_ending(
    chain: ChainToPromote, fact: _FactWithStatement, end: StatementInMessage
) -> ObservationSource:
    event = end.event
    return ObservationSource(
        source_id=event.event_id,
        version=None,
        scope_id=chain.scope_id,
        participants=chain.participants,
        event_ids=[event.event_id, *fact.row.event_ids],
        trust=least_trusted([event.origin, fact.row.trust]),
        observed_at=event.recorded_at,
        valid_from=event.said_at,
    )


def _make_fact_observation(
    source: ObservationSource, fact: _FactWithStatement, patch: Mapping[str, object]
) -> NodeObservation:
    return NodeObservation(source, "fact", fact.row.name, patch, node_id=fact.row.node_id)
