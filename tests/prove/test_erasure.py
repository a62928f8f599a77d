"""P13: what is erased is in no byte of any store, whoever was at work; and it stays so."""

import io
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from strandline.erasure import eraser, store_derived
from strandline.local.aws import LocalAws, client
from strandline.observability import logger
from tests.prove.erasure_stores import ERASED, ERASURES, KEPT, WHO, complete, every_byte
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, ScratchDatabase, user_message

EVENTS = 20_000


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request runs beside the last runs of the job."""
    for wait in ("_REQUEST_WAIT", "_VACUUM_SPACING"):
        monkeypatch.setattr(eraser, wait, timedelta(0))


@pytest.fixture
def spoken() -> Iterator[io.StringIO]:
    """All that the service logs, metrics included."""
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger(logger.name)
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)


def say(gateway: Gateway, key: str, bodies: list[dict[str, object]]) -> list[str]:
    """Append in batches; gives the ids."""
    ids: list[str] = []
    for first in range(0, len(bodies), 250):
        body = {"events": bodies[first : first + 250]}
        reply = gateway.call("POST", "/api/v1/events/batch", body, key=key)
        assert reply.body["failed"] == 0, reply.text
        ids += [item["event"]["event_id"] for item in reply.body["results"]]
    return ids


def canary_bodies(n: int) -> list[dict[str, object]]:
    """An event of every kind, with canaries in all that a caller may fill; two kinds share one."""
    word = f"{ERASED}{n}"
    common = {"metadata": {word: [word]}, "source_event_key": f"{word} key", "channel": word}
    return [
        user_message(f"My sister {word} lives in {word.title()}.", *WHO, **common, session_id=word),
        user_message(f"{word} " * 7000, *WHO, metadata={"n": word}),
        {
            "participants": list(WHO),
            "role": "agent",
            "type": "observation",
            "content": f"The tool returned {word}.",
            "metadata": {"workflow_id": word},
        },
    ]


def plant(gateway: Gateway, key: str, events: int, kinds: int) -> list[str]:
    """A log of so many events, with canaries all over it; gives the ids of what bears them."""
    ids: list[str] = []
    step = max(1, events // kinds)
    for n in range(kinds):
        quiet = [
            user_message(f"{KEPT} {n} {m}: the tide comes at {m}.", *WHO, session_id=f"s{n}")
            for m in range(step)
        ]
        say(gateway, key, quiet)
        ids += say(gateway, key, canary_bodies(n))
        topic = {"type": "topic", "name": f"{ERASED}{n} topic"}
        body = {"participants": list(WHO), "nodes": [topic]}
        node = gateway.call("POST", "/api/v1/graph/nodes", body, key=key).body["nodes"][0]
        path = f"/api/v1/graph/topics/{node['id']}/fields/state"
        body = {"participants": list(WHO), "value": f"{ERASED}{n}"}
        field_ = gateway.call("POST", path, body, key=key).body
        ids += [node["event_id"], field_["event_id"]]
    return ids


def test_canaries_are_in_no_byte(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    aws: LocalAws,
    spoken: io.StringIO,
    scaled: Callable[[int], int],
) -> None:
    s3 = client("s3")
    s3.put_bucket_versioning(Bucket=aws.bucket, VersioningConfiguration={"Status": "Enabled"})
    key = gateway.key(rights=["read", "write", "admin", "erase"])
    ids = plant(gateway, key, scaled(EVENTS), scaled(40))
    fold_all(gateway, scratch_db)
    scratch_db.rows("update chains set promote_until = now() + interval '1 day'")
    gateway.run_job("promoter")
    build(gateway)
    recall = {"query": f"sister {ERASED}0", "participants": [WHO[0]]}
    assert ERASED in gateway.call("POST", "/api/v1/recall", recall, key=key).text
    assert ERASED in every_byte(scratch_db, aws)
    scratch_db.rows("analyze")
    for first in range(0, len(ids), 500):
        body = {"event_ids": ids[first : first + 500]}
        reply = gateway.call("POST", ERASURES, body, key=key)
        assert reply.status == 202, reply.text
    complete(gateway, scratch_db, key)
    fold_all(gateway, scratch_db)
    gateway.run_job("promoter")
    build(gateway)
    gateway.run_job("archiver")
    assert ERASED not in every_byte(scratch_db, aws)
    assert ERASED not in spoken.getvalue().lower()
    assert shown(gateway, key) == []
    assert KEPT in every_byte(scratch_db, aws)


def shown(gateway: Gateway, key: str) -> list[str]:
    """The answers that still hold a canary."""
    reads: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("POST", "/api/v1/recall", {"query": "sister"}),
        ("POST", "/api/v1/events/query", {"text": "sister"}),
        ("POST", "/api/v1/references/query", {"query": "sister"}),
        ("POST", "/api/v1/context", {"query": "sister"}),
        ("POST", "/api/v1/graph/search", {"query": "topic", "mode": "exact"}),
        ("GET", "/api/v1/graph/nodes", {}),
        ("GET", "/memories/list", {}),
        ("GET", "/api/v1/sessions", {}),
        ("GET", "/metrics", {}),
    )
    found: list[str] = []
    for method, path, fields in reads:
        body = {**fields, "participants": [WHO[0]]} if method == "POST" else None
        reply = gateway.call(method, path, body, key=key)
        if reply.status != 200 or ERASED in reply.text.lower():
            found.append(f"{path}: {reply.status} {reply.text[:300]}")
    return found


def test_a_forgotten_table_is_found(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teeth."""
    key = gateway.key(rights=["read", "write", "admin", "erase"])
    ids = plant(gateway, key, 4, 1)

    def forget(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(store_derived, "withdraw_observations", forget)
    body = {"event_ids": ids}
    assert gateway.call("POST", ERASURES, body, key=key).status == 202
    complete(gateway, scratch_db, key)
    assert ERASED in every_byte(scratch_db, aws)
