"""The sample that tells what a question's cosines are in its view: of the view, not of what was
found in it, and of nothing else."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import pytest

from strandline.db.database import Caller, Database
from strandline.recall.calibrations import UNCALIBRATED
from strandline.recall.cosine_scale import SAMPLED_EVENTS
from strandline.recall.features import QuestionWord
from strandline.recall.question_mentions import parse_names_and_dates
from strandline.recall.relevance import rank_candidates
from strandline.recall.store import CandidateRow, search_candidate_events
from tests.bench.growth_data import AGENT, SPACE, Row, SyntheticTenant, load_tenant, make_tenant
from tests.support import ScratchDatabase

EVENTS = 600
NOW = datetime(2026, 6, 10, tzinfo=UTC)
_SIZES = (400, 140, 50, 10)
"""Events of the scopes."""


class UnevenTenant(SyntheticTenant):
    """Its scopes hold as many events as _SIZES says."""

    def scope_of(self, event: int) -> int:
        """Which scope an event is in."""
        return int(np.searchsorted(np.cumsum(_SIZES), event, "right"))

    def cosines(self, vector: Row) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """Of a question with each event."""
        lengths = np.linalg.norm(self.vectors, axis=1) * np.linalg.norm(vector)
        return np.asarray(self.vectors @ vector / lengths, np.float64)


@dataclass(frozen=True)
class Tenants:
    """The tenant that is asked, and another in the same database."""

    base: ScratchDatabase
    own: UnevenTenant
    another: SyntheticTenant

    def ask(
        self, viewer: str, vector: Row | None, filters: dict[str, object] | None = None
    ) -> Sequence[CandidateRow]:
        """The candidates for a question on behalf of a viewer; the first row holds the sample."""
        with closing(Database(self.base.url)) as database:
            return search_candidate_events(
                database.connect_as(Caller(self.own.name, (viewer,))),
                question=self.own.texts[3],
                vector=None if vector is None else vector.tolist(),
                space=SPACE,
                filters=filters or {},
                now=NOW,
            ).rows

    def sample(self, viewer: str, vector: Row, **filters: object) -> list[float]:
        """The sampled cosines of a question."""
        rows = self.ask(viewer, vector, filters)
        return next(r.sampled_cosines for r in rows if r.sampled_cosines is not None)

    def events_of(self, sample: Sequence[float], vector: Row) -> list[int]:
        """The numbers of the events whose cosines these are."""
        cosines = self.own.cosines(vector)
        numbers = [int(np.abs(cosines - value).argmin()) for value in sample]
        assert np.abs(cosines[numbers] - np.array(sample)).max() < 1e-3
        return numbers

    def scores(self, viewer: str, vector: Row) -> dict[UUID, float]:
        """The score of each candidate."""
        rows = self.ask(viewer, vector)
        head = next(row for row in rows if row.events_in_view is not None)
        ranking = rank_candidates(
            parse_names_and_dates("What is it?", NOW.date()),
            [QuestionWord(word, 5) for word in head.words or []],
            rows,
            head.events_in_view or 0,
            UNCALIBRATED,
            None,
            head.sampled_cosines or (),
            head.sampled_tool_cosines or (),
        )
        return {event.candidate.event_id: event.score for event in ranking.events}


@pytest.fixture
def tenants(scratch_db: ScratchDatabase) -> Tenants:
    made = make_tenant("own", EVENTS, len(_SIZES), seed=3)
    own = UnevenTenant(**vars(made))
    another = make_tenant("another", 200, 2, seed=4)
    for tenant in (own, another):
        load_tenant(scratch_db, tenant)
    return Tenants(scratch_db, own, another)


def question_near(tenants: Tenants, event: int) -> Row:
    return tenants.own.clusters.near(tenants.own.vectors[event])


def find_faults(tenants: Tenants) -> Iterator[str]:
    """What is wrong with samples of a view."""
    vector = question_near(tenants, 7)
    sample = tenants.sample(AGENT, vector)
    if len(sample) != SAMPLED_EVENTS:
        yield f"{len(sample)} events"
    numbers = tenants.events_of(sample, vector)
    if len(set(numbers)) < SAMPLED_EVENTS - 2:  # two cosines may be alike
        yield f"{len(set(numbers))} different events"
    for scope, size in enumerate(_SIZES):
        share = sum(tenants.own.scope_of(n) == scope for n in numbers)
        if abs(share - SAMPLED_EVENTS * size / EVENTS) > 1:
            yield f"{share} events of a scope of {size}"
    truth = tenants.own.cosines(vector)
    if abs(np.mean(sample) - truth.mean()) > 4 * truth.std() / SAMPLED_EVENTS**0.5:
        yield f"a mean of {np.mean(sample)} for {truth.mean()}"


def test_sampled_cosines_spread_by_scope_size(tenants: Tenants) -> None:
    assert list(find_faults(tenants)) == []


def test_sampled_cosines_test_detects_nearest_events(tenants: Tenants) -> None:
    """The nearest events are no sample: to be near would seem usual."""
    tenants.base.rows(
        "create or replace function sample_view("
        " p_vector halfvec, p_space text, p_scopes uuid[], p_limit int,"
        " out cosines float8[], out tool_cosines float8[])"
        " language sql stable as $$ select array_agg(cosine), '{}'::float8[] from ("
        "   select 1 - (embedding <=> p_vector) as cosine from event_vectors"
        "   where space = p_space order by embedding <=> p_vector limit p_limit) v $$"
    )
    assert any("a mean of" in fault for fault in find_faults(tenants))


def test_sampled_cosines_take_all_of_small_view(tenants: Tenants) -> None:
    vector = question_near(tenants, 560)
    for scope, size in ((2, 50), (3, 10)):
        sample = tenants.sample(tenants.own.user(scope), vector)
        numbers = [n for n in range(EVENTS) if tenants.own.scope_of(n) == scope]
        assert len(numbers) == size
        assert sample == pytest.approx(tenants.own.cosines(vector)[numbers].tolist(), abs=1e-3)


def test_sampled_cosines_ignore_filters(tenants: Tenants) -> None:
    vector = question_near(tenants, 7)
    whole = tenants.sample(AGENT, vector)
    for session in ("session-1", "session-2"):
        assert tenants.sample(AGENT, vector, session_id=session) == whole


def test_sampled_cosines_leave_out_erased_and_vectorless(tenants: Tenants) -> None:
    scope = 3
    numbers = [n for n in range(EVENTS) if tenants.own.scope_of(n) == scope]
    ids = [tenants.own.event_ids[n] for n in numbers]
    run = tenants.base.rows
    run("update events set erased_at = now() where event_id = %s returning 1", ids[0])
    run("delete from event_vectors where event_id = %s returning 1", ids[1])
    run(
        "update event_vectors set embedding = null, refusal = 'refused' where event_id = %s"
        " returning 1",
        ids[2],
    )
    vector = question_near(tenants, numbers[5])
    expected = tenants.own.cosines(vector)[numbers[3:]].tolist()
    assert tenants.sample(tenants.own.user(scope), vector) == pytest.approx(expected, abs=1e-3)


def test_sampled_cosines_of_tools_come_apart(tenants: Tenants) -> None:
    scope = 3
    numbers = [n for n in range(EVENTS) if tenants.own.scope_of(n) == scope]
    for n in numbers[:4]:
        update = "update events set type = 'observation' where event_id = %s returning 1"
        assert tenants.base.rows(update, tenants.own.event_ids[n])
    vector = question_near(tenants, numbers[5])
    rows = tenants.ask(tenants.own.user(scope), vector)
    (head,) = [row for row in rows if row.sampled_cosines is not None]
    expected = tenants.own.cosines(vector)
    assert head.sampled_cosines == pytest.approx(expected[numbers[4:]].tolist(), abs=1e-3)
    assert head.sampled_tool_cosines == pytest.approx(expected[numbers[:4]].tolist(), abs=1e-3)


def test_sampled_cosines_are_none_without_vectors(tenants: Tenants) -> None:
    rows = tenants.ask(AGENT, None)
    assert [row.sampled_cosines for row in rows if row.sampled_cosines is not None] == [[]]
    tenants.base.rows("delete from event_vectors returning 1")
    assert tenants.sample(AGENT, question_near(tenants, 7)) == []
    assert all(row.cosine is None for row in tenants.ask(AGENT, question_near(tenants, 7)))


def test_sampled_cosines_give_same_scores_at_same_mark(tenants: Tenants) -> None:
    vector = question_near(tenants, 7)
    first = tenants.scores(AGENT, vector)
    assert len(first) > SAMPLED_EVENTS
    assert all(tenants.scores(AGENT, vector) == first for _ in range(3))


def test_sampled_cosines_ignore_vectors_out_of_view(tenants: Tenants) -> None:
    vector, viewer = question_near(tenants, 7), tenants.own.user(1)
    first = tenants.scores(viewer, vector)
    moved = tenants.base.rows(
        "update event_vectors set embedding = (select embedding from event_vectors limit 1)"
        " where tenant_id <> 'own' or not participants @> %s returning 1",
        [viewer],
    )
    assert len(moved) == EVENTS - _SIZES[1] + len(tenants.another.event_ids)
    assert tenants.scores(viewer, vector) == first
    everybody = tenants.scores(AGENT, vector)
    shared = set(everybody) & set(first)
    assert shared
    assert any(everybody[event_id] != first[event_id] for event_id in shared), "no view differs"
