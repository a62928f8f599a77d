"""The archiver: cold chains leave mid-term memory, and nothing else of them goes."""

from pathlib import Path

from tests.functions.conftest import Told
from tests.support import Base, Gateway

OLD = "2024-03-01T10:00:00Z"


def formed(base: Base, gateway: Gateway, tell: Told, **more: object) -> None:
    """A chain of one event."""
    tell(gateway.key(), "The buoy goes out on Friday with a new battery.", **more)
    gateway.tick()
    base.rows("update lanes set idle_at = now() - interval '1 second'")
    gateway.tick()
    base.rows("update chain_versions set rejected = null")
    base.rows("update chains set status = 'active', archived_at = null")


def test_a_cold_chain_is_archived(base: Base, gateway: Gateway, tell: Told) -> None:
    formed(base, gateway, tell)
    before = base.rows("select count(*) from events join chain_events using (tenant_id, event_id)")
    gateway.run("archiver")
    assert base.rows("select status from chains") == [("active",)]
    base.rows("update chains set cold_at = now() - interval '1 second'")
    gateway.run("archiver")
    assert base.rows("select status, archived_at is not null from chains") == [("archived", True)]
    assert base.rows("select count(*) from chain_vectors") == [(0,)]
    assert before == base.rows(
        "select count(*) from events join chain_events using (tenant_id, event_id)"
    )
    assert base.rows("select count(*) from chain_versions") == [(1,)]


def test_an_import_of_old_history_is_not_cold_on_arrival(
    base: Base, gateway: Gateway, tell: Told
) -> None:
    formed(base, gateway, tell, occurred_at=OLD)
    assert base.rows("select extract(year from last_event_at)::int from chains") == [(2024,)]
    gateway.run("archiver")
    assert base.rows("select status, cold_at > now() + interval '6 days' from chains") == [
        ("active", True)
    ]
    # And if only its age counted it would be (planted).
    base.rows("update chains set cold_at = last_event_at + interval '7 days'")
    gateway.run("archiver")
    assert base.rows("select status from chains") == [("archived",)]


def test_a_chain_whose_recall_is_not_counted_yet_waits(
    base: Base, gateway: Gateway, tell: Told
) -> None:
    formed(base, gateway, tell)
    base.rows("update chains set cold_at = now() - interval '1 second'")
    base.rows(
        "insert into recalls (tenant_id, recall_id, chain_id, scope_id, participants, recalled_at)"
        " select tenant_id, uuidv7(), chain_id, scope_id, participants, now() from chains"
    )
    gateway.run("archiver")
    assert base.rows("select status from chains") == [("active",)]


def test_the_definition_names_nothing_of_one_deployment(repository: Path) -> None:
    text = (repository / "infra" / "job.asl.json").read_text()
    assert text.count("${") == text.count("${Bucket}") + text.count("${FunctionPrefix}")
    assert "JSONata" not in text
