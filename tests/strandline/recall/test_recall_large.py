"""Recall where so many events are in view that it reads a part of them: what it must not lose."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from unittest.mock import patch
from uuid import UUID

import numpy as np
import psycopg
import pytest

from strandline.db.database import Caller, Database, TenantDb
from strandline.embeddings.embedder import ENGLISH_DIMENSIONS
from strandline.recall import store
from strandline.recall.cosine_scale import SAMPLED_EVENTS
from strandline.recall.store import CandidateRow, search_candidate_events
from tests.bench.growth_data import AGENT, SPACE, Row, SyntheticTenant, load_tenant, make_tenant
from tests.query_plans import Explainer, nodes
from tests.support import ScratchDatabase

EVENTS, SCOPES = 8_000, 2_500
_OLDER, _ERASED_WORD = "bygone", "forgotten"
"""Words that only the older half of the events holds, and only the erased ones."""
_MIN_RECALL, _FOUND_BY_WORDS = 0.98, 0.85
_RARE = 8
"""A word of so few events is rare in the sample, whichever pieces that has."""
_COUNTS = """
select words.word, count(*) filter (where w.words @@ word_query(words.word, ':ACD')),
    array_agg(w.event_id) filter (where w.words @@ word_query(words.word, ''))
from unnest(%(words)s::text[]) words (word), event_search w
join events e using (tenant_id, event_id)
where w.tenant_id = %(tenant)s and e.erased_at is null
group by words.word
"""


@dataclass(frozen=True)
class Large:
    """Two tenants of a size: one in a single scope, one in many."""

    base: ScratchDatabase
    one: SyntheticTenant
    many: SyntheticTenant

    def views(self) -> Sequence[tuple[SyntheticTenant, tuple[str, ...]]]:
        """Who sees everything: by one scope, as an agent that is in all, and as an admin."""
        return ((self.one, (self.one.user(0),)), (self.many, (AGENT,)), (self.many, ()))


@pytest.fixture
def large(scratch_db: ScratchDatabase) -> Large:
    """Eight thousand events, twice, some of them erased."""
    one, many = (
        replace(tenant, texts=[text + _words_at(n) for n, text in enumerate(tenant.texts)])
        for tenant in (
            make_tenant("one", EVENTS, 1, seed=1),
            make_tenant("many", EVENTS, SCOPES, seed=2),
        )
    )
    for tenant in (one, many):
        load_tenant(scratch_db, tenant)
        erased_ids = [event_id for n, event_id in enumerate(tenant.event_ids) if is_erased(n)]
        scratch_db.rows(
            "update events set erased_at = now() where event_id = any (%s) returning 1", erased_ids
        )
    return Large(scratch_db, one, many)


def _words_at(n: int) -> str:
    return f" {_OLDER}" * (n < EVENTS // 2) + f" {_ERASED_WORD}" * is_erased(n)


def is_erased(n: int) -> bool:
    """Whether event n is erased; what was made of it is still there."""
    return n % 21 == 9


def _find(access: TenantDb, question: str, vector: Row | None = None) -> Sequence[CandidateRow]:
    return search_candidate_events(
        access,
        question=question,
        vector=None if vector is None else vector.tolist(),
        space=SPACE,
        filters={},
        now=datetime.now(UTC),
    ).rows


def find_losses(large: Large) -> Iterator[str]:
    """What recall does not give of a large view, and should."""
    with closing(Database(large.base.url)) as database:
        for tenant, viewer in large.views():
            access = database.connect_as(Caller(tenant.name, viewer))
            yield from _lost_vectors(
                access, tenant, large.many if tenant is large.one else large.one
            )
            yield from _lost_words(large.base, access, tenant)
            yield from _lost_newest(access, tenant)
            yield from _lost_counts(access)
            yield from _lost_sample(access, tenant)


def _lost_vectors(
    access: TenantDb, tenant: SyntheticTenant, another: SyntheticTenant
) -> Iterator[str]:
    unit = tenant.vectors / np.linalg.norm(tenant.vectors, axis=1, keepdims=True)
    unit[[is_erased(n) for n in range(EVENTS)]] = 0
    for near in (tenant, another):
        hits = 0
        for n in range(20):
            vector = near.clusters.near(near.vectors[n * 17])
            rows = _find(access, "", vector)
            if len(rows) < store.CANDIDATES:
                yield f"{len(rows)} vectors of {tenant.name}"
            best = sorted(rows, key=lambda row: row.cosine or 0.0, reverse=True)[:10]
            exact = np.argsort(-(unit @ vector), kind="stable")[:10].tolist()
            hits += len({row.event_id for row in best} & {tenant.event_ids[n] for n in exact})
        if hits < _MIN_RECALL * 200:
            yield f"{hits} of 200 nearest in {tenant.name} near {near.name}"


def _lost_words(base: ScratchDatabase, access: TenantDb, tenant: SyntheticTenant) -> Iterator[str]:
    for n in range(6):
        rows = _find(access, tenant.texts[-1 - n * 29])
        with patch.object(store, "_LARGE_VIEW", 2 * EVENTS):
            best = {row.event_id for row in _find(access, tenant.texts[-1 - n * 29])}
        if len(best & {row.event_id for row in rows}) < _FOUND_BY_WORDS * len(best):
            yield f"{len(rows)} events with words of {tenant.name}, and not the best"
        head = rows[0]
        words, counts = head.words or [], head.document_counts or []
        with psycopg.connect(base.admin_url) as administrator:
            params = {"words": words, "tenant": tenant.name}
            truth = {
                word: (count, set(ids))
                for word, count, ids in administrator.execute(_COUNTS, params)
            }
        if not 0.8 < (head.events_in_view or 0) / EVENTS < 1.25:
            yield f"{head.events_in_view} events in view"
        for word, count in zip(words, counts, strict=True):
            exact, ids = truth[word]
            if exact <= _RARE:
                if count != exact or not ids & best <= {row.event_id for row in rows}:
                    yield f"{word} in {exact} events, {count} counted"
            elif exact > EVENTS / 10 and not 0.6 < count / exact < 1.6:
                yield f"{word}, a common word, in {exact} events, {count} counted"


def _lost_newest(access: TenantDb, tenant: SyntheticTenant) -> Iterator[str]:
    """Of a word that most events hold, the newest are found."""
    split = [text.split() for text in tenant.texts]
    common = max(set(split[-1]), key=lambda word: sum(word in words for words in split))
    holders = [n for n, words in enumerate(split) if common in words and not is_erased(n)]
    newest = {tenant.event_ids[n] for n in holders[-store.CANDIDATES :]}
    assert len(holders) > EVENTS / 3
    for question in (common, f"{common} unheardof"):
        if {row.event_id for row in _find(access, question)} != newest:
            yield f"not the newest of {len(holders)} events with {question}"


def _lost_counts(access: TenantDb) -> Iterator[str]:
    """Of a word that many events hold, and none of those that are read, there are counts alone."""
    vector = np.ones(ENGLISH_DIMENSIONS, np.float32)
    for word, count in ((_OLDER, EVENTS / 2), (_ERASED_WORD, 0)):
        (counts,) = _find(access, word, vector)[0].document_counts or [0]
        if not 0.6 * count <= counts <= 1.6 * count:
            yield f"{word} in {count:.0f} events, {counts} counted"


def _lost_sample(access: TenantDb, tenant: SyntheticTenant) -> Iterator[str]:
    """The sample of a view, of which not all scopes are listed, has the mean of the whole."""
    vector = tenant.clusters.near(tenant.vectors[7])
    sample = _find(access, "", vector)
    cosines = next(row.sampled_cosines for row in sample if row.sampled_cosines is not None)
    unit = tenant.vectors / np.linalg.norm(tenant.vectors, axis=1, keepdims=True)
    truth = unit @ vector
    if not 60 <= len(cosines) <= SAMPLED_EVENTS:  # a twentieth is erased
        yield f"a sample of {len(cosines)}"
    if abs(np.mean(cosines) - truth.mean()) > 4 * truth.std() / len(cosines) ** 0.5:
        yield f"a sample with a mean of {np.mean(cosines)} for {truth.mean()}"


@pytest.mark.proof
def test_recall_large_view_loses_little(large: Large) -> None:
    losses = list(find_losses(large))
    assert losses == []


@pytest.mark.proof
def test_recall_large_tenant_loses_nothing_of_small_view(large: Large) -> None:
    with closing(Database(large.base.url)) as database:
        access = database.connect_as(Caller("many", (large.many.user(9),)))
        rows = _find(access, large.many.texts[9], large.many.vectors[9])
        numbers = [n for n in large.many.events_in(9).tolist() if not is_erased(n)]
        in_view = {large.many.event_ids[n] for n in numbers}
        assert 0 < len(numbers) < len(large.many.events_in(9))
        assert {row.event_id for row in rows} == in_view
        assert rows[0].events_in_view == len(in_view)


def test_recall_large_view_loses_nothing_by_low_bound(large: Large) -> None:
    """A sample may say that fewer bits suffice than do: then all codes are compared."""
    ((definition,),) = large.base.rows("select pg_get_functiondef('nearest_by_code'::regproc)")
    bound, again = (
        "[3 + ceil(3 * max(wanted.codes)",
        "or (select count(*) from within) = v_wanted",
    )
    assert bound in definition
    assert again in definition
    with closing(Database(large.base.url)) as database:
        for tenant, viewer in large.views():
            access = database.connect_as(Caller(tenant.name, viewer))
            results: list[set[UUID]] = []
            for change in (
                definition,
                definition.replace("left join sample on", "left join sample on false and"),
                too_low := definition.replace(bound, "[1 + ceil(0 * max(wanted.codes)"),
                too_low.replace(again, "or true"),
            ):
                large.base.rows(change)
                rows = _find(access, "", tenant.vectors[7])
                results.append({row.event_id for row in rows})
            assert results[0] == results[1] == results[2]
            assert len(results[3]) < len(results[0]), "the bound was not too low"


def test_recall_joins_words_with_their_weights_by_hash(scratch_db: ScratchDatabase) -> None:
    """The planner expects one event that holds a word; row by row, hundreds are compared with
    each of their weights."""
    tenant = make_tenant("acme", 200, 1, seed=3)
    load_tenant(scratch_db, tenant)
    explainer = Explainer(scratch_db)
    with closing(explainer.database) as database:
        access = database.connect_as(Caller("acme", (tenant.user(0),)))
        plans = explainer.plans(lambda: _find(access, tenant.texts[7]))
    joins = [
        node["Node Type"]
        for plan in plans
        for node in nodes(plan["Plan"])
        if {"s", "m"}
        <= {scan.get("Alias") for part in node.get("Plans", []) for scan in nodes(part)}
        and "Join Type" in node
    ]
    assert joins[-1] == "Hash Join", joins


_ANY_PLACE = "and e.seq = place.seq"
_FAULTS = (
    ("nearest_by_code", "order by c.code <~> v_code,", "order by"),
    ("nearest_by_code", "ceil(p_limit * (3 +", "ceil(p_limit / 9.0 * (3 +"),
    ("nearest_by_code", "or c.event_id <> all (v_erased)", "or true"),
    ("search_words_in_large_view", "where w.event_id <> all (v_erased)", ""),
    ("search_words_in_large_view", "and e.seq = place.seq and e.erased_at is null", _ANY_PLACE),
    ("search_words_in_large_view", "or v_pass = 2 and counts.total > 0", ""),
    ("search_words_in_large_view", "v_pass = 2 and counts.total > 0", "counts.total > 0"),
    ("search_words_in_large_view", "p_events::float8 / count(*)", "9 * p_events / count(*)"),
    ("search_words_in_large_view", "order by all_count, n)", "order by -all_count, n)"),
    ("search_words_in_large_view", "exit when v_row_count > 0", "exit"),
    ("search_words_in_large_view", "order by e.recorded_at desc,", "order by e.recorded_at,"),
    ("read_view", "/ id_share(v_lowest[c_sample])", "* 9"),
    ("sample_view", "order by m.scope_id limit c_scopes", "limit 0"),
    ("sample_view", "order by s.scope_id limit c_scopes", "limit 0"),
)


@pytest.mark.proof
def test_recall_large_test_detects_loss(large: Large) -> None:
    for function, part, instead in _FAULTS:
        ((definition,),) = large.base.rows("select pg_get_functiondef(%s::regproc)", function)
        assert part in definition
        large.base.rows(definition.replace(part, instead))
        assert any(find_losses(large)), f"{function} with {instead!r} for {part!r}"
        large.base.rows(definition)
