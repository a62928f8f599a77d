"""Trees as they are stored: the same rows however the growth was divided among builds."""

import random
from math import log2
from typing import Any

import pytest

from strandline.topics import build_limits
from tests.strandline.topics.outline import build, depths, drop_index, read_tree
from tests.strandline.topics.world import ScopeWorld
from tests.support import Gateway, ScratchDatabase

ROWS = (
    "select slot, parent_slot, node_id, is_leaf, chain_version from topic_tree"
    " where tenant_id = %s and to_version is null order by slot"
)
CONTENTS = (
    "select to_jsonb(n) - 'created_at' from topic_tree t"
    " join topic_nodes n using (tenant_id, node_id)"
    " where t.tenant_id = %s and to_version is null order by t.slot"
)


SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.proof) for seed in (1, 2)))


@pytest.mark.parametrize(
    ("kind", "merges"),
    [
        *(("clustered", 0.4), ("random", 0.0), ("identical", 0.4), ("none", 0.0)),
        pytest.param("clustered", 0.0, marks=pytest.mark.proof),
        pytest.param("random", 0.4, marks=pytest.mark.proof),
        pytest.param("identical", 0.0, marks=pytest.mark.proof),
        pytest.param("none", 0.4, marks=pytest.mark.proof),
    ],
)
def test_growth_keeps_depth_fill_and_leaves(
    scratch_db: ScratchDatabase, gateway: Gateway, kind: str, merges: float
) -> None:
    world, insert_count = ScopeWorld(scratch_db, seed=len(kind)), 0
    for count in (3, 1, 30, 90):
        world.add(count, merges=merges, kind=kind, rejected=0.1)
        insert_count += count
        assert build(gateway)["snapshots_published"] == 1
        rows = read_tree(scratch_db)
        result = depths(rows)
        assert sorted(result) == sorted(world.chain_ids), "every leaf exactly once"
        if insert_count >= 4:
            assert max(result.values()) <= 2 * log2(insert_count)
        parents = [row[3] for row in rows]
        assert max(parents.count(parent) for parent in set(parents) if parent) <= 16


@pytest.mark.parametrize("seed", SEEDS)
def test_growth_is_same_in_one_build_or_many(
    scratch_db: ScratchDatabase, gateway: Gateway, seed: int
) -> None:
    rng = random.Random(seed)
    options: dict[str, Any] = {"merges": 0.3, "rejected": 0.1}
    world, published = ScopeWorld(scratch_db, seed=seed), 0
    while world.seq < 240:
        world.add(rng.randrange(1, 25), **options)
        published += build(gateway)["snapshots_published"]
    assert published > 4
    rows, contents = scratch_db.rows(ROWS, "acme"), scratch_db.rows(CONTENTS, "acme")
    drop_index(scratch_db)
    assert build(gateway)["snapshots_published"] == 1
    assert scratch_db.rows(ROWS, "acme") == rows
    assert scratch_db.rows(CONTENTS, "acme") == contents


def test_growth_spreads_import_over_several_builds(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_limits, "MAX_VERSIONS", 40)
    world = ScopeWorld(scratch_db)
    world.add(100)
    cutoffs: list[int] = []
    while scratch_db.rows("select 1 from topic_work"):
        assert build(gateway)["versions_taken"] == min(40, 100 - len(cutoffs) * 40)
        cutoffs.append(
            scratch_db.rows("select cutoff from snapshot_scopes where to_version is null")[0][0]
        )
    assert cutoffs == [80, 160, 200]


def test_growth_summaries_cost_log_n(scratch_db: ScratchDatabase, gateway: Gateway) -> None:
    world = ScopeWorld(scratch_db)
    world.add(400)
    first = build(gateway)
    assert first["summaries"] <= 400, "once per build, not per leaf"
    world.add(10)
    assert build(gateway)["summaries"] <= 10 * 2 * log2(410)
    world.add(1)
    assert build(gateway)["summaries"] <= 2 * log2(411)
