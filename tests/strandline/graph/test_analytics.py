"""The analytics: when they are due, what they store, what they refuse, and what stays as it was."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from strandline.db.database import TenantDb
from strandline.graph.communities import analytics, store_analytics
from strandline.graph.communities.label_propagation import WeightedLink
from strandline.graph.communities.store_analytics import AnalysisGraph
from strandline.jobs import worker_resources
from strandline.jobs.runner import Lease
from tests.strandline.graph.crews import ADA, BO, TWO_CREWS, between, crew, state
from tests.support import Gateway, ScratchDatabase

COMMUNITIES = "/api/v1/graph/communities"
EVERYBODY = {"everybody": "true"}
STORED_ROWS = """
    select 'c', c.community_id::text, c.scope_id::text, c.size, c.bridges, c.neighbours::text,
        c.analysed_at from graph_communities c
    union all
    select 'm', m.node_id::text, m.community_id::text, m.rank, m.is_bridge::int,
        m.bridge_score::text, null from graph_members m
    order by 1, 2
"""


def jobs(gateway: Gateway) -> list[dict[str, Any]]:
    key = gateway.key(rights=("admin",))
    reply = gateway.call("GET", "/api/v1/admin/jobs", key=key, query={"kind": "analyze"})
    return reply.body["jobs"]


def test_analytics_runs_once_after_3_am_for_changed_graph(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    state(gateway, TWO_CREWS, ADA)
    assert gateway.run_job("analytics") == {}, "not before the morning"
    ((changed_at, due),) = scratch_db.rows(
        "select changed_at, (select next_analysis('1 hour', now())) from graph_analyses"
    )
    assert (due.hour, due.minute, due.second) == (3, 0, 0)
    assert changed_at < due <= changed_at + timedelta(days=1)
    scratch_db.rows("update graph_analyses set changed_at = changed_at - interval '1 day'")
    totals = gateway.run_job("analytics")
    assert (totals["jobs_done"], totals["graphs_analysed"]) == (1, 2), "the scope's, the tenant's"
    assert (totals["communities"], totals["bridges"]) == (2, 1)
    assert gateway.run_job("analytics") == {}
    assert scratch_db.rows("select next_analysis('1 hour', now())") == [(None,)]


def test_analytics_next_run_retries_or_waits_for_morning(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    state(gateway, TWO_CREWS, ADA)
    now = datetime(2026, 11, 20, 4, 30, tzinfo=UTC)
    for changed_at, due in (
        ("2026-11-20T02:59Z", datetime(2026, 11, 20, 5, tzinfo=UTC)),
        ("2026-11-20T03:00Z", datetime(2026, 11, 21, 3, tzinfo=UTC)),
        ("2026-11-18T12:00Z", datetime(2026, 11, 21, 3, 29, tzinfo=UTC)),
    ):
        scratch_db.rows("update graph_analyses set changed_at = %s", changed_at)
        assert scratch_db.rows("select next_analysis('1 hour', %s)", now) == [(due,)]


def test_analytics_stores_communities_ranks_and_bridges(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    ids = state(gateway, TWO_CREWS, ADA)
    totals = gateway.run_job("analytics", "acme")
    assert (totals["communities"], totals["bridges"]) == (2, 1)
    members = scratch_db.rows(
        "select n.name, m.rank, m.is_bridge, m.bridge_score, m.community_id"
        " from graph_members m join graph_nodes n using (tenant_id, node_id)"
    )
    assert {name for name, *_ in members} == set(ids)
    assert {name: score for name, _, bridge, score, _ in members if bridge} == {"Nils": 0.5}
    by_community = {
        name: {other for other, *_, same in members if same == place}
        for name, rank, *_, place in members
        if rank == 1
    }
    assert {"Petrel", "Quentin", "Rosa"} < by_community["Petrel"]
    assert {"Lighthouse", "Ulla", "Viktor"} < by_community["Lighthouse"]


def test_analytics_of_unchanged_graph_changes_nothing(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """Neither another run nor the same communities of a scope that was dropped and found again."""
    state(gateway, TWO_CREWS, ADA)
    gateway.run_job("analytics", "acme")
    before = scratch_db.rows(STORED_ROWS)
    totals = gateway.run_job("analytics", "acme")
    assert not {"graphs_analysed", "graphs_failed"} & totals.keys()
    scratch_db.rows("update graph_analyses set changes = changes + 1")
    assert gateway.run_job("analytics", "acme")["graphs_unchanged"] == 1
    assert scratch_db.rows(STORED_ROWS) == before
    scratch_db.rows("delete from graph_communities")
    scratch_db.rows("update graph_analyses set changes = changes + 1, digest = null")
    totals = gateway.run_job("analytics", "acme")
    assert (totals["graphs_analysed"], totals["graphs_unchanged"]) == (1, 1)
    without_time = [row[:-1] for row in before]
    assert [row[:-1] for row in scratch_db.rows(STORED_ROWS)] == without_time


def test_analytics_drops_ended_nodes_and_edges_at_next_run(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """A node that no longer holds, one that is archived, and edges that ended."""
    ids = state(gateway, TWO_CREWS, ADA)
    gateway.run_job("analytics", "acme")
    removed_ids = [UUID(ids[name].partition(":")[2]) for name in ("Nils", "Rosa", "Viktor")]
    scratch_db.rows("update graph_nodes set valid_to = now() where node_id = %s", removed_ids[0])
    scratch_db.rows("update graph_nodes set archived = true where node_id = %s", removed_ids[1])
    scratch_db.rows("update graph_edges set valid_to = now() where from_id = %s", removed_ids[2])
    scratch_db.rows("update graph_analyses set changes = changes + 1")
    gateway.run_job("analytics", "acme")
    assert scratch_db.rows("select size, bridges from graph_communities order by 1") == [
        (4, 0),
        (4, 0),
    ]
    assert scratch_db.rows(
        "select count(*) from graph_members where node_id = any (%s)", removed_ids
    ) == [(0,)]


def test_analytics_counts_merged_nodes_as_one(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    ids = state(gateway, [*TWO_CREWS, between("Nils B.", "Quentin", "Rosa")], ADA)
    scratch_db.rows(
        "update graph_nodes set identity = (select name_hash from graph_nodes where name = 'Nils')"
        " where name = 'Nils B.'"
    )
    gateway.run_job("analytics", "acme")
    assert scratch_db.rows("select sum(size) from graph_communities") == [(11,)]
    key = gateway.key(rights=("admin",))
    body = gateway.call(
        "GET", COMMUNITIES, key=key, query={"node_id": ids["Nils B."], **EVERYBODY}
    ).body
    (community,) = body["communities"]
    place = f"{COMMUNITIES}/{community['community_id']}"
    nodes = gateway.call("GET", place, key=key, query=EVERYBODY).body["nodes"]
    (nils,) = [node for node in nodes if node["name"].startswith("Nils")]
    assert (nils["id"], set(nils["members"])) == (ids["Nils"], {ids["Nils"], ids["Nils B."]})


def answers(gateway: Gateway, key: str) -> list[str]:
    """All that a user reads of communities."""
    reply = gateway.call("GET", COMMUNITIES, key=key)
    return [
        reply.text,
        *(
            gateway.call("GET", f"{COMMUNITIES}/{one['community_id']}", key=key).text
            for one in reply.body["communities"]
        ),
    ]


REMOVE = """
    delete from graph_edges where participants = '{user:bo}';
    delete from graph_nodes where participants = '{user:bo}';
    delete from graph_observations where participants = '{user:bo}';
    delete from graph_analyses where participants = '{user:bo}'
"""


def add_and_remove_a_scope(gateway: Gateway, scratch_db: ScratchDatabase) -> list[list[str]]:
    """What ada reads: before another's scope is there, with it, and after it is gone. The other's
    graph has the same names, joined otherwise."""
    state(gateway, TWO_CREWS, ADA)
    key = gateway.key(user="user:ada")
    gateway.run_job("analytics", "acme")
    results = [answers(gateway, key)]
    nodes = [*crew("Petrel", "Sven", "Rosa", "Ulla", "Ebba"), between("Nils", "Rosa", "Ebba")]
    state(gateway, nodes, BO)
    scratch_db.rows("update graph_analyses set changes = changes + 1")
    gateway.run_job("analytics", "acme")
    results.append(answers(gateway, key))
    scratch_db.rows(REMOVE)
    scratch_db.rows("update graph_analyses set changes = changes + 1")
    gateway.run_job("analytics", "acme")
    results.append(answers(gateway, key))
    return results


def test_analytics_answers_ignore_foreign_scope(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    before, beside, after = add_and_remove_a_scope(gateway, scratch_db)
    assert len(before) == 3, "a list and two communities"
    assert before == beside == after


def test_analytics_check_notices_leak_across_scopes(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the graph of a scope is read with all other scopes'."""
    real = store_analytics.read_graph_within_limits

    def leak(access: TenantDb, scope_ids: Sequence[UUID], *limits: int) -> AnalysisGraph | None:
        del scope_ids
        every = store_analytics.read_tenant_analysis_state(access).scope_ids
        return real(access, every, *limits)

    monkeypatch.setattr(store_analytics, "read_graph_within_limits", leak)
    before, beside, _ = add_and_remove_a_scope(gateway, scratch_db)
    assert before != beside or jobs(gateway), "or the database refuses a row of another scope"


def test_analytics_refuses_too_large_graph_with_alternative(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    state(gateway, crew("Petrel", "Oskar", "Pia"), ADA)
    gateway.run_job("analytics", "acme")
    before = scratch_db.rows(STORED_ROWS)
    state(gateway, TWO_CREWS, ADA)
    for name, bound in (("MAX_NODES", 10), ("MAX_LINKS", 23)):
        with monkeypatch.context() as patch:
            patch.setattr(analytics, name, bound)
            scratch_db.rows("update graph_analyses set changes = changes + 1")
            assert gateway.run_job("analytics", "acme")["graphs_refused"] == 2
        refusal = jobs(gateway)
        ((scope_id,),) = scratch_db.rows("select scope_id::text from graph_analyses")
        assert {job["ref"]: job["scope_id"] for job in refusal} == {
            "tenant": None,
            scope_id: scope_id,
        }
        assert {(job["state"], job["reason"]) for job in refusal} == {("failed", "graph_too_large")}
        for job in refusal:
            assert "has 11 nodes and 24 edges" in job["advice"]
            assert "of the scopes instead" in job["advice"]
    assert scratch_db.rows(STORED_ROWS) == before, "what was found before stays"
    assert scratch_db.rows("select next_analysis('1 hour', now())") == [(None,)], "not due again"
    key = gateway.key(rights=("admin",))
    place = f"/api/v1/admin/jobs/{jobs(gateway)[0]['job_id']}/retry"
    assert gateway.call("POST", place, key=key).status == 202
    gateway.sweep()
    assert [job["state"] for job in jobs(gateway)].count("queued") == 1, "it is not the sweeper's"
    gateway.run_job("analytics", "acme")
    assert {job["state"] for job in jobs(gateway)} == {"done"}
    assert scratch_db.rows(STORED_ROWS) != before


def test_analytics_failure_of_one_graph_stops_no_other(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    state(gateway, crew("Petrel", "Oskar", "Pia"), ADA)
    state(gateway, crew("Petrel", "Ebba"), BO)
    real = analytics.find_groups

    def fail(links: Sequence[WeightedLink]) -> list[list[int]]:
        if len(links) == 3:
            raise ValueError("a secret")
        return real(links)

    with monkeypatch.context() as patch:
        patch.setattr(analytics, "find_groups", fail)
        totals = gateway.run_job("analytics", "acme")
    assert (totals["graphs_failed"], totals["graphs_analysed"]) == (1, 2)
    (failed,) = jobs(gateway)
    assert (failed["reason"], failed["state"]) == ("ValueError", "failed")
    assert scratch_db.rows("select size from graph_communities") == [(2,)]
    scratch_db.rows("update graph_analyses set changed_at = now() - interval '1 day'")
    assert gateway.run_job("analytics")["graphs_analysed"] == 1, "it is still due"
    assert {job["state"] for job in jobs(gateway)} == {"done"}


def test_analytics_defers_changes_made_during_run(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node more, and one that is gone, between the reading of the graph and the storing."""
    state(gateway, TWO_CREWS, ADA)
    real = analytics.find_groups

    def write_and_go_on(links: Sequence[WeightedLink]) -> list[list[int]]:
        state(gateway, [{"type": "entity", "name": "Wilma"}], ADA)
        scratch_db.rows("delete from graph_nodes where name = 'Rosa'")
        return real(links)

    with monkeypatch.context() as patch:
        patch.setattr(analytics, "find_groups", write_and_go_on)
        assert gateway.run_job("analytics", "acme")["jobs_done"] == 1
    assert scratch_db.rows("select count(*) from graph_members") == [(10,)]
    assert scratch_db.rows("select changes > analysed_changes from graph_analyses") == [(True,)]


def test_analytics_stays_due_when_out_of_time(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    state(gateway, TWO_CREWS, ADA)
    state(gateway, crew("Petrel", "Ebba"), BO)
    scratch_db.rows("update graph_analyses set changed_at = now() - interval '1 day'")
    looks = iter([False, True])

    def is_out_of_time(_: Lease) -> bool:
        return next(looks)

    with monkeypatch.context() as patch:
        patch.setattr(Lease, "is_out_of_time", is_out_of_time)
        totals = gateway.run_job("analytics")
    assert (totals["graphs_analysed"], totals["graphs_postponed"]) == (1, 1)
    assert scratch_db.rows("select count(*) from graph_tenant_communities") == [(0,)]
    assert gateway.run_job("analytics")["graphs_analysed"] == 2


def test_analytics_finds_graph_without_change_count(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    state(gateway, TWO_CREWS, ADA)
    scratch_db.rows("delete from graph_analyses")
    assert gateway.run_job("analytics", "acme")["communities"] == 2


def test_analytics_trigger_starts_job_or_names_running_one(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(rights=("admin",))
    started = gateway.call("POST", "/api/v1/admin/analytics/trigger", key=key)
    assert (started.status, started.body["kind"], started.body["state"]) == (
        *(202, "analytics"),
        "queued",
    )
    again = gateway.call("POST", "/api/v1/admin/analytics/trigger", key=key)
    assert (again.status, again.error["details"]["job_id"]) == (409, started.body["job_id"])
    assert scratch_db.rows(
        "select route, target ->> 'job' from audit_log where target ? 'job'"
    ) == [("POST /api/v1/admin/analytics/trigger", "analytics")]
    reply = gateway.call("POST", "/api/v1/admin/analytics/trigger", key=gateway.key())
    assert reply.status == 403


def test_analytics_run_reports_metrics(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []

    def note(dimensions: Any, values: Any) -> dict[str, object]:
        lines.append({**dimensions, **values})
        return {}

    monkeypatch.setattr(worker_resources, "make_emf_fields", note)
    state(gateway, TWO_CREWS, ADA)
    gateway.run_job("analytics", "acme")
    (line,) = lines
    assert (line["job"], line["CommunitiesFound"], line["BridgesFound"], line["GraphsRefused"]) == (
        *("analytics", 2, 1),
        0,
    )
    assert {"LabelPropagationMilliseconds", "BridgeScoreMilliseconds"} <= line.keys()
