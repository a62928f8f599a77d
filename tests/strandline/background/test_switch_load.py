"""A switch of embedding spaces while others append and ask, and one whose process is killed."""

import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from strandline.background import store_switches
from strandline.background.process_events import embed_and_fold_due_scopes
from strandline.db.database import TenantDb
from strandline.log import store_work
from tests.strandline.background.switches import (
    TEXTS,
    ask,
    configure,
    count_vectors,
    embedder,
    found_by_meaning,
    key,
    make_filler,
    new,
    process_due_work,
    read_space,
    run_filler,
    say,
)
from tests.strandline.embeddings.fake_embedders import (
    KnownEmbedders,
    WordEmbedder,
    delay,
)
from tests.support import Gateway, ScratchDatabase

__all__ = ["embedder", "key", "new"]


def test_switch_under_load_leaves_no_answer_without_vectors(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Appends, their embedding and questions go on in threads while sweeps fill, compare and
    switch. Every process but the sweeper's knows the tenant's space from its cache."""
    say(gateway, key, *(f"ballast {n} stone {n}" for n in range(300)), session="s-2")
    gateway.sweep()
    configure(monkeypatch, new, embedder)
    new.before_embed = delay(0.02)
    is_over, failures, appended = threading.Event(), list[object](), list[str]()

    def append_and_embed() -> None:
        while not is_over.is_set():
            n = len(appended)
            appended.extend(say(gateway, key, f"lantern{n} wick", session="s-3"))
            process_due_work(gateway)

    def question() -> None:
        while not is_over.is_set():
            answer = ask(gateway, key, "mooring rope harbour")
            if answer["degraded"] or not found_by_meaning(answer):
                failures.append(answer)
            if count := len(appended):
                newest = ask(gateway, key, f"lantern{count - 1}", limit=100)
                if appended[count - 1] not in [hit["event_id"] for hit in newest["hits"]]:
                    failures.append(newest)

    with ThreadPoolExecutor(3) as pool:
        tasks = [pool.submit(append_and_embed), pool.submit(question), pool.submit(question)]
        try:
            for _ in range(5):
                gateway.sweep()
                if read_space(scratch_db) == new.space:
                    break
            count = len(appended)
            deadline = time.monotonic() + 20
            while len(appended) < count + 5 and time.monotonic() < deadline:
                time.sleep(0.05)  # questions of a process that has not heard of the switch
        finally:
            is_over.set()
    for task in tasks:
        task.result()
    assert read_space(scratch_db) == new.space
    assert len(appended) > count
    assert failures == []
    configure(monkeypatch, new, embedder)
    process_due_work(gateway)
    assert count_vectors(scratch_db)[new.space] == len(TEXTS) + 300 + len(appended)
    answer = ask(gateway, key, f"lantern{len(appended) - 1} wick")
    assert answer["not_yet_embedded"] == 0
    assert appended[-1] in found_by_meaning(answer)


def test_switch_killed_while_filling_goes_on(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process of its own fills two batches, is killed within the third, and another before it
    tells the database of the switch. What was stored is not computed again."""
    say(gateway, key, *(f"ballast {n} stone {n}" for n in range(400)), session="s-2")
    gateway.sweep()
    configure(monkeypatch, new, embedder)
    for step, stored in (("store_event_vectors", 256), ("try_switch", 405)):
        program = run_filler(scratch_db, step, batches=2 if step == "store_event_vectors" else 0)
        assert program.returncode == -signal.SIGKILL, program.stderr
        assert read_space(scratch_db) == "words/64"
        assert count_vectors(scratch_db) == {"words/64": 405, "other/96": stored}
        assert found_by_meaning(ask(gateway, key, "mooring rope"))
        scratch_db.rows("update jobs set leased_until = now() - interval '1 hour' returning 1")
    gateway.sweep()
    assert read_space(scratch_db) == "other/96"
    assert not new.embedded_texts or set(new.embedded_texts) <= {*TEXTS[3:], "warm"}
    ((texts, chains),) = scratch_db.rows(
        "select texts, (select count(*) from chain_vectors where space = 'other/96')"
        " from space_switches"
    )
    assert texts == 405 + chains


def test_switch_is_found_by_process_with_stale_cache(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks in the space that was left, and finds what came since as it finds new events."""
    configure(monkeypatch, new, embedder)
    ask(gateway, key, "mooring rope")  # now the credential's tenant is known to read words/64
    gateway.sweep()
    assert read_space(scratch_db) == "other/96"
    (newest,) = say(gateway, key, "anchor chain windlass")
    process_due_work(gateway)
    assert scratch_db.rows("select count(*) from scope_work") == [(0,)]
    answer = ask(gateway, key, "what holds the boat")
    assert embedder.embedded_texts[-1] == "what holds the boat"
    assert newest in [hit["event_id"] for hit in answer["hits"]]
    assert answer["not_yet_embedded"] == 1
    assert found_by_meaning(ask(gateway, key, "mooring rope"))


def test_switch_keeps_work_of_overtaken_worker(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker has embedded an event in the space that was read when it began. The tenant switches
    then, and the event has no vector in the new space: its work stays due, so that it is found."""
    configure(monkeypatch, new, embedder)
    worker = replace(make_filler(gateway, new), embedders=KnownEmbedders(embedder))
    settle = store_work.release_scope_leases

    def late(access: TenantDb, scope_ids: Sequence[UUID], space: str, **more: Any) -> int:
        scratch_db.rows("update tenants set reading_space = 'other/96' returning 1")
        count = settle(access, scope_ids, space, **more)
        monkeypatch.setattr(store_work, "release_scope_leases", settle)
        assert (space, count) == ("words/64", 0)
        return count

    monkeypatch.setattr(store_work, "release_scope_leases", late)
    say(gateway, key, "anchor chain windlass")
    embed_and_fold_due_scopes(worker, "acme")
    assert count_vectors(scratch_db) == {"words/64": 6, "other/96": 6}


def test_switch_finds_event_embedded_just_before_it(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    key: str,
    embedder: WordEmbedder,
    new: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its work was done, in the space that is left: the switch makes it due again."""
    configure(monkeypatch, new, embedder)
    real, newest = store_switches.try_switch, list[str]()

    def late(*args: Any) -> bool:
        if not newest:
            newest.extend(say(gateway, key, "anchor chain windlass"))
            process_due_work(gateway)
            assert scratch_db.rows("select count(*) from scope_work") == [(0,)]
        return real(*args)

    monkeypatch.setattr(store_switches, "try_switch", late)
    gateway.sweep()
    assert read_space(scratch_db) == "other/96"
    assert count_vectors(scratch_db) == {"words/64": 6, "other/96": 5}
    configure(monkeypatch, new, embedder)
    answer = ask(gateway, key, "what holds the boat")
    assert newest[0] in [hit["event_id"] for hit in answer["hits"]]
    assert answer["not_yet_embedded"] == 1
    process_due_work(gateway)
    assert ask(gateway, key, "what holds the boat")["not_yet_embedded"] == 0
