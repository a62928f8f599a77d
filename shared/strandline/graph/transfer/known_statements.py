"""Which statements of a file the graph has already, whichever source here made them."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from strandline.auth.principals import Principal
from strandline.db.database import TenantDb
from strandline.graph.nodes.identity import normalise_name
from strandline.graph.transfer import store_known
from strandline.graph.transfer.parsed_file import FileObservation, FileStatement, GraphFile
from strandline.graph.transfer.schemas_file import RevisionFields
from strandline.graph.transfer.statement_lines import join_names_as_content
from strandline.graph.transfer.store_known import KnownObservation, StatedRevision
from strandline.log.schemas_fields import Role
from strandline.log.trust_ranks import least_trusted

type Part = tuple[object, ...]
"""All that an import stores of one observation, or of a revision."""
type Teller = tuple[str | None, ...]
"""Role, speaker and content of a statement's event. Empty for a chain, which has none of its
own."""
_CHAIN: Teller = ()


def resolve_speaker(principal: Principal, statement: FileStatement) -> tuple[Role, str | None]:
    """The role and speaker under which a statement is stored here. A bound credential speaks as an
    agent of the scope if that agent is the speaker, else as its own user."""
    is_agent = statement.speaker is not None and statement.role == "agent"
    if principal.user is None or is_agent:
        return statement.role, statement.speaker
    return "user", principal.user


class KnownStatementFinder:
    """Finds the statements of a file that one source of the graph already made as a whole: the same
    speaker at the same moment with the same trust, content, observations and revision."""

    def __init__(
        self,
        principal: Principal,
        access: TenantDb,
        graph: GraphFile,
        node_ids: Sequence[UUID],
        edge_ids: Sequence[UUID],
    ) -> None:
        self._principal, self._access, self._graph = principal, access, graph
        self._node_ids, self._edge_ids = node_ids, edge_ids
        self._sources: dict[tuple[Teller, datetime, str, Part], set[UUID]] = defaultdict(set)
        self._observed: set[tuple[UUID, UUID]] = set()
        """The sources, each with a target that it still observes."""

    def find_lines(self) -> frozenset[int]:
        """The lines of the statements that are known. Of copies of one statement as many are known
        as sources made it."""
        self._load_sources()
        if not self._sources:
            return frozenset()
        lines: set[int] = set()
        taken: set[tuple[UUID, frozenset[Part]]] = set()
        for statement in self._graph.statements:
            parts = frozenset(self._iter_parts(statement))
            for source_id in self._iter_sources(statement):
                if (source_id, parts) not in taken:
                    taken.add((source_id, parts))
                    lines.add(statement.line)
                    break
        return frozenset(lines)

    def _load_sources(self) -> None:
        moments = [statement.said_at for statement in self._graph.statements]
        if not moments:
            return
        first, last = min(moments), max(moments)
        observations = store_known.list_observations(
            self._access, [*self._node_ids, *self._edge_ids], first, last
        )
        revisions = store_known.list_revisions(self._access, self._node_ids, first, last)
        event_ids = {row.source_id for row in (*observations, *revisions)}
        tellers: dict[UUID, Teller] = {
            event.event_id: (event.role, event.speaker, event.content)
            for event in store_known.list_statement_events(self._access, list(event_ids))
        }
        for row in observations:
            self._observed.add((row.source_id, row.target_id))
            teller = tellers[row.source_id] if row.is_statement else _CHAIN
            self._add_source(teller, row, _describe_stored_observation(row))
        for row in revisions:
            self._add_source(tellers[row.source_id], row, _describe_stored_revision(row))

    def _add_source(
        self, teller: Teller, row: KnownObservation | StatedRevision, part: Part
    ) -> None:
        self._sources[teller, row.said_at, row.trust, part].add(row.source_id)

    def _iter_sources(self, statement: FileStatement) -> Iterator[UUID]:
        """The sources that made all of this statement, those of its own speaker first."""
        for teller, trust in self._list_tellers(statement):
            source = teller, statement.said_at, trust
            found = [
                self._sources.get((*source, self._describe_observation(observation)), set[UUID]())
                for observation in statement.says
            ]
            if revision := statement.revision:
                made = self._sources.get((*source, self._describe_revision(revision)), set[UUID]())
                found = [
                    sources | self._find_replaced(made, observation, revision)
                    for sources, observation in zip(found, statement.says, strict=True)
                ]
                found.append(made)
            yield from set[UUID].intersection(*found)

    def _find_replaced(
        self, sources: set[UUID], observation: FileObservation, revision: RevisionFields
    ) -> set[UUID]:
        """Those of a revision's sources whose observation of its topic the field's next revision
        replaced."""
        if observation.is_edge or observation.target != revision.node - 1:
            return set()
        topic_id = self._node_ids[observation.target]
        return {one for one in sources if (one, topic_id) not in self._observed}

    def _list_tellers(self, statement: FileStatement) -> list[tuple[Teller, str]]:
        """As what the statement may be stored here, with its trust: as the file has it, or as this
        import would store it. A bound credential elsewhere gave what has no speaker to its user,
        and an export writes the names of what a chain observed as its content."""
        content, trust = statement.content, statement.trust
        role, speaker = resolve_speaker(self._principal, statement)
        tellers: list[tuple[Teller, str]] = [
            ((statement.role, statement.speaker, content), trust),
            ((role, speaker, content), least_trusted([role, trust])),
        ]
        if statement.speaker is not None and statement.role == "user":
            tellers += [((role, None, content), trust) for role in ("user", "agent", "system")]
        names = join_names_as_content(
            self._graph.nodes[one.target].name for one in statement.says if not one.is_edge
        )
        if normalise_name(content) == normalise_name(names):
            tellers.append((_CHAIN, trust))
        return tellers

    def _iter_parts(self, statement: FileStatement) -> Iterator[Part]:
        for observation in statement.says:
            yield self._describe_observation(observation)
        if statement.revision:
            yield self._describe_revision(statement.revision)

    def _describe_observation(self, observation: FileObservation) -> Part:
        ids = self._edge_ids if observation.is_edge else self._node_ids
        return (
            ids[observation.target],
            _encode(observation.patch),
            observation.confidence,
            observation.heat,
            observation.valid_from,
        )

    def _describe_revision(self, revision: RevisionFields) -> Part:
        return (
            self._node_ids[revision.node - 1],
            revision.field,
            _encode(revision.value),
            revision.valid_from,
            revision.why_changed,
            revision.impact_expected,
            revision.ref_node and self._node_ids[revision.ref_node - 1],
        )


def _describe_stored_observation(row: KnownObservation) -> Part:
    return row.target_id, _encode(row.patch), row.confidence, row.heat, row.valid_from


def _describe_stored_revision(row: StatedRevision) -> Part:
    return (
        row.node_id,
        row.field,
        _encode(row.value),
        row.valid_from,
        row.why_changed,
        row.impact_expected,
        row.ref_id,
    )


def _encode(value: object) -> str:
    return json.dumps(value, sort_keys=True)
