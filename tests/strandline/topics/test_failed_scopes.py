"""A scope whose tree cannot be grown is a failure that an admin sees and can retry."""

from typing import Any

import pytest

from strandline.topics import builder
from tests.strandline.topics.outline import build
from tests.strandline.topics.world import ALONE, OTHERS, ScopeWorld, fail_growth_of
from tests.support import Gateway, ScratchDatabase

JOBS = "/api/v1/admin/jobs"


@pytest.fixture
def worlds(scratch_db: ScratchDatabase) -> list[ScopeWorld]:
    """Three scopes of one tenant, two of which will fail."""
    worlds = [
        ScopeWorld(scratch_db, members=members, seed=seed)
        for seed, members in enumerate((("user:carol",), ALONE, OTHERS))
    ]
    for world in worlds:
        world.add(6)
    return worlds


def list_failures(gateway: Gateway, key: str) -> list[dict[str, Any]]:
    """The scopes that failed, by reason."""
    jobs = gateway.call("GET", JOBS, query={"kind": "grow"}, key=key).body["jobs"]
    return sorted(jobs, key=lambda job: job["scope_id"])


def test_failed_scope_is_failure_until_built(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    worlds: list[ScopeWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = gateway.key("acme", rights=["admin"])
    for attempts in (1, 2):
        with monkeypatch.context() as patch:
            fail_growth_of(patch, worlds[0], ValueError)
            build(gateway)
        (failure,) = list_failures(gateway, key)
        assert failure["scope_id"] == failure["ref"] == str(worlds[0].scope_id)
        assert (failure["state"], failure["reason"]) == ("failed", "ValueError")
        assert failure["attempts"] == attempts
        assert "fresh tail" in failure["advice"]
        assert "strandline_jobs_failed 1" in gateway.call("GET", "/metrics", key=key).text
    build(gateway)
    (failure,) = list_failures(gateway, key)
    assert (failure["state"], failure["reason"], failure["advice"]) == ("done", "", "")
    assert "strandline_jobs_failed 0" in gateway.call("GET", "/metrics", key=key).text
    assert scratch_db.rows("select count(*) from snapshot_scopes where to_version is null") == [
        (3,)
    ]


def test_failed_scope_retry_requests_build(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    worlds: list[ScopeWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = gateway.key("acme", rights=["admin"])
    with monkeypatch.context() as patch:
        fail_growth_of(patch, worlds[1], KeyError)
        build(gateway)
    (failure,) = list_failures(gateway, key)
    reply = gateway.call("POST", f"{JOBS}/{failure['job_id']}/retry", key=key)
    assert (reply.status, reply.body["state"], reply.body["attempts"]) == (202, "queued", 2)
    gateway.sweep()  # a sweep leaves it to the builder
    assert list_failures(gateway, key)[0]["state"] == "queued"
    build(gateway)
    assert list_failures(gateway, key)[0]["state"] == "done"
    assert scratch_db.rows("select count(*) from jobs where kind = 'grow'") == [(1,)]


def test_failed_scope_includes_invalid_tree(
    gateway: Gateway, worlds: list[ScopeWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All scopes fail, so that nothing is published; each is recorded."""
    key = gateway.key("acme", rights=["admin"])

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(builder, "grow_scope_tree", fail)
        assert "snapshots_published" not in build(gateway)
    failures = list_failures(gateway, key)
    assert [failure["reason"] for failure in failures] == ["MemoryError"] * 3
    assert {failure["scope_id"] for failure in failures} == {str(w.scope_id) for w in worlds}
