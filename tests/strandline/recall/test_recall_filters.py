"""Recall under any filter gives what a plain look through every event would give."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pgvector import HalfVector
from psycopg.rows import class_row

from strandline.db.database import Caller, Database
from strandline.recall import store
from strandline.recall.features import WINDOW, QuestionWord
from strandline.recall.store import CandidateRow, search_candidate_events
from tests.prove.large_tenant import (
    COMMON,
    DIMENSIONS,
    HELPER,
    NARROW,
    SPACE,
    TENANT,
    WIDE,
    fill_tenant,
)
from tests.support import ScratchDatabase

FILTERS = 25
"""Of each viewer."""
VIEWERS = ((WIDE,), (NARROW,), (HELPER,), (HELPER, WIDE), ("user:nobody",), ())
VECTOR = [random.Random(7).gauss(0, 1) for _ in range(DIMENSIONS)]
# What lay_down leaves alike everywhere, made different; some erased, the last of some scopes new.
_VARIED = """
set session_replication_role = replica;
update events set
    type = (array['message', 'thought', 'action', 'observation'])[1 + (hashtext(cid || 1) & 3)],
    origin = (array['user', 'agent', 'tool', 'document'])[1 + (hashtext(cid || 2) & 3)],
    channel = (array['http', 'slack'])[1 + (hashtext(cid || 3) & 1)],
    speaker = case when hashtext(cid || 4) & 3 > 0 then speaker end,
    occurred_at = case when hashtext(cid || 5) & 1 = 0 then recorded_at - interval '3 hours' end,
    erased_at = case when hashtext(cid || 6) & 31 = 0 then now() end;
update embedding_progress set embedded_seq = greatest(embedded_seq - 30, 0)
    where hashtext(scope_id::text) & 3 = 0;
delete from event_vectors v using events e, embedding_progress p
    where e.event_id = v.event_id and p.scope_id = v.scope_id and e.seq > p.embedded_seq;
insert into scope_work (tenant_id, scope_id, participants, due_at)
    select s.tenant_id, s.scope_id, s.participants, now()
    from scopes s join embedding_progress p using (tenant_id, scope_id)
    where s.last_seq > p.embedded_seq
    on conflict do nothing
"""


@dataclass(frozen=True)
class Row:
    """An event and all that recall may find it by."""

    event_id: UUID
    scope_id: UUID
    seq: int
    participants: list[str]
    session_id: str
    channel: str
    role: str
    type: str
    origin: str
    speaker: str | None
    metadata: dict[str, Any]
    recorded_at: datetime
    occurred_at: datetime | None
    erased_at: datetime | None
    own: list[bool]
    """For each word of the question, whether the event holds it."""
    near: list[bool]
    """The same, of it with the event before it."""
    distance: float | None
    waiting: bool


_EVERY_ROW = """
select e.event_id, e.scope_id, e.seq, e.participants, e.session_id, e.channel, e.role, e.type,
    e.origin, e.speaker, e.metadata, e.recorded_at, e.occurred_at, e.erased_at,
    array(select w.words @@ word_query(word, ':ACD') from unnest(%(words)s::text[]) word) as own,
    array(select w.words @@ word_query(word, '') from unnest(%(words)s::text[]) word) as near,
    v.embedding <=> %(vector)s::halfvec as distance,
    e.seq > p.embedded_seq and k.scope_id is not null as waiting
from events e
join event_search w using (tenant_id, scope_id, event_id)
join embedding_progress p using (tenant_id, scope_id)
left join event_vectors v using (tenant_id, scope_id, event_id, space)
left join scope_work k using (tenant_id, scope_id)
where e.tenant_id = %(tenant)s
"""

type Narrowing = dict[str, Any]
type RowsById = dict[UUID, tuple[int, bool, bool]]
"""Of each candidate its words as bits, whether it has a cosine, and whether it is fresh."""


def passing(row: Row, narrowing: Narrowing) -> bool:
    """Does an event pass a filter, as the API promises it?"""
    said_at = row.occurred_at or row.recorded_at
    rest = dict(narrowing)
    since, until = rest.pop("since", None), rest.pop("until", None)
    metadata = rest.pop("metadata", {})
    return (
        all(getattr(row, name) == value for name, value in rest.items())
        and (since is None or said_at >= datetime.fromisoformat(since))
        and (until is None or said_at < datetime.fromisoformat(until))
        and metadata.items() <= row.metadata.items()
    )


def in_view(rows: Sequence[Row], viewer: Sequence[str]) -> list[Row]:
    """The events that may be found: not the erased ones, whatever is left of them."""
    return [r for r in rows if set(viewer) <= set(r.participants) and r.erased_at is None]


def count_words(rows: Sequence[Row], words: int) -> list[int]:
    """How many events hold each word."""
    return [sum(row.own[n] for row in rows) for n in range(words)]


def expected(view: Sequence[Row], counts: Sequence[int], narrowing: Narrowing) -> RowsById:
    """The candidates by words, vectors and freshness, from every row in view, of which so many hold
    each word."""
    weights = [QuestionWord("", count).compute_inverse_frequency(len(view)) for count in counts]
    ids = [row for row in view if passing(row, narrowing)]

    def weight(row: Row) -> float:
        pairs = zip(weights, row.own, row.near, strict=True)
        return round(sum(value * (own + near) for value, own, near in pairs), 9)

    words = sorted(
        (row for row in ids if any(row.near)),
        key=lambda row: (weight(row), row.event_id),
        reverse=True,
    )[: store.CANDIDATES]
    vectors = sorted(
        (row for row in ids if row.distance is not None),
        key=lambda row: (row.distance, row.event_id),
    )[: store.CANDIDATES]
    fresh = sorted(
        (row for row in ids if row.waiting),
        key=lambda row: (row.recorded_at, row.event_id),
        reverse=True,
    )[: store.MAX_FRESH]
    by_words = {row.event_id: sum(own << n for n, own in enumerate(row.own)) for row in words}
    is_fresh = {row.event_id for row in fresh}
    return {
        row.event_id: (
            by_words.get(row.event_id, 0),
            row.distance is not None,
            row.event_id in is_fresh,
        )
        for row in [*words, *vectors, *fresh]
    }


def lanes_of(rows: Sequence[Row]) -> list[list[UUID]]:
    """The events of each session, in order."""
    lanes: dict[tuple[UUID, str], list[UUID]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.seq):
        if row.erased_at is None:
            lanes[row.scope_id, row.session_id].append(row.event_id)
    return list(lanes.values())


def places(lanes: Sequence[Sequence[UUID]], results: Sequence[CandidateRow]) -> dict[UUID, int]:
    """The place of each candidate among the events of its session, a long gap counted as a short
    one."""
    ids, items = {row.event_id for row in results}, dict[UUID, int]()
    for lane in lanes:
        place, before = 0, -1
        for n, event_id in enumerate(lane):
            if event_id in ids:
                place += min(n - before, WINDOW + 1) if before >= 0 else 0
                items[event_id], before = place, n
    return items


def some_filter(chance: random.Random, rows: Sequence[Row]) -> Narrowing:
    """Up to three of the filters, with values of some event, or of none."""
    one = chance.choice(rows)
    pool: Mapping[str, Callable[[], Any]] = {
        "session_id": lambda: one.session_id,
        "channel": lambda: one.channel,
        "role": lambda: chance.choice((one.role, "system")),
        "type": lambda: one.type,
        "speaker": lambda: one.speaker or "user:p1",
        "origin": lambda: one.origin,
        "since": one.recorded_at.isoformat,
        "until": one.recorded_at.isoformat,
        "metadata": lambda: chance.choice((one.metadata, {}, {"pier": 99})),
    }
    return {name: pool[name]() for name in chance.sample(sorted(pool), chance.randint(0, 3))}


def differing(base: ScratchDatabase, filters: int = FILTERS, seed: int = 5) -> Iterator[str]:
    """Callers and filters for whom recall differs from what it should be."""
    chance = random.Random(seed)
    question = f"the {COMMON} by word1 and word2"
    with psycopg.connect(base.admin_url) as administrator:
        words = administrator.execute("select question_words(%s, 60)", (question,)).fetchone()
        assert words is not None
        params = {"words": words[0], "vector": HalfVector(VECTOR).to_text(), "tenant": TENANT}
        rows = administrator.cursor(row_factory=class_row(Row)).execute(_EVERY_ROW, params)
        everything = rows.fetchall()
    lanes = lanes_of(everything)
    with closing(Database(base.url)) as database:
        for viewer in VIEWERS:
            access = database.connect_as(Caller(TENANT, viewer))
            view = in_view(everything, viewer)
            counts = count_words(view, len(words[0]))
            for narrowing in [{}, *(some_filter(chance, everything) for _ in range(filters))]:
                result = search_candidate_events(
                    access,
                    question=question,
                    vector=VECTOR,
                    space=SPACE,
                    filters=narrowing,
                    now=datetime.now(UTC),
                ).rows
                expected_ids = expected(view, counts, narrowing)
                got = {r.event_id: (r.word_bits, r.cosine is not None, r.is_fresh) for r in result}
                if got != expected_ids or len(result) != len(got):
                    yield f"{viewer} {narrowing}: {len(got)} candidates for {len(expected_ids)}"
                if {row.event_id: row.place for row in result} != places(lanes, result):
                    yield f"{viewer} {narrowing}: other places"
                if result and (result[0].document_counts, result[0].events_in_view) != (
                    counts,
                    len(view),
                ):
                    yield f"{viewer} {narrowing}: other counts"


@pytest.fixture
def varied_database(scratch_db: ScratchDatabase) -> ScratchDatabase:
    """Four thousand events of which no two filters give the same."""
    fill_tenant(scratch_db, 4_000, 400)
    scratch_db.rows(_VARIED)
    scratch_db.rows("analyze")
    return scratch_db


def test_recall_filters_match_full_scan(
    varied_database: ScratchDatabase, proof_size: Callable[[int], int]
) -> None:
    assert list(differing(varied_database, max(5, proof_size(FILTERS)))) == []


@pytest.mark.parametrize(
    ("function", "part", "instead"),
    [
        ("search_words", "and matches_filter(e, p_filter)", ""),
        (
            "search_words",
            "and not exists (select from erased where erased.event_id = w.event_id)",
            "",
        ),
        (
            "search_words",
            "order by s.weight desc, m.event_id desc",
            "order by s.weight desc, m.event_id",
        ),
        ("search_words", "sum(w.frequency * ", "sum(-w.frequency * "),
        ("nearest_matching_filter", "or cardinality(v_nearest) < v_candidates", "or true"),
        ("nearest_matching_filter", "and v.event_id <> all (v_nearest)", ""),
        (
            "nearest_matching_filter",
            "distance, v.event_id limit v_candidates",
            "distance desc limit v_candidates",
        ),
        ("matches_filter", "(e).erased_at IS NULL", "true"),
    ],
)
@pytest.mark.proof
def test_recall_filters_test_detects_wrong_leg(
    varied_database: ScratchDatabase, function: str, part: str, instead: str
) -> None:
    ((definition,),) = varied_database.rows("select pg_get_functiondef(%s::regproc)", function)
    assert part in definition
    varied_database.rows(definition.replace(part, instead))
    assert any(differing(varied_database))
