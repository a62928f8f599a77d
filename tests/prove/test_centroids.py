"""A sona's place is a function of what it was active in: whatever the order in which vectors and
memberships come, however often, and by how many at once, it is what one computes from nothing."""

import json
import math
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest

from strandline.db.database import Caller, Database, TenantDb
from strandline.personas import store_members, store_sonas
from tests.support import Gateway, ScratchDatabase, user_message

SPACE, DIMENSIONS = "numbers/24", 24
TOLERANCE = 1e-5
"""Of each component of a mean of unit vectors. A sum has 24 bits, its terms have 11: a thousand of
them lose less than 1e-6 of the mean, in any order."""
SCOPES = (("user:alice",), ("user:alice", "user:bob"), ("user:bob",), ("agent:x", "user:alice"))
VIEWERS = ((), ("user:alice",), ("user:bob",), ("agent:x",), ("user:zoe",))
STORE_VECTOR = (
    "insert into event_vectors (tenant_id, space, scope_id, event_id, participants, embedding)"
    " select tenant_id, %(space)s, scope_id, event_id, participants, %(vector)s::halfvec"
    " from events where tenant_id = current_tenant() and event_id = %(event_id)s"
    " on conflict do nothing"
)


def unit_vector(rng: random.Random) -> list[float]:
    parts = [rng.gauss(0, 1) for _ in range(DIMENSIONS)]
    length = math.hypot(*parts)
    return [part / length for part in parts]


def tell(gateway: Gateway, count: int) -> list[UUID]:
    """So many events, in four scopes."""
    key, ids = gateway.key(), list[UUID]()
    for begin in range(0, count, 400):
        texts = range(begin, min(begin + 400, count))
        events = [
            user_message(f"event {n}", *SCOPES[n % 4], source_event_key=str(n)) for n in texts
        ]
        for event in events:
            event["role"] = "system"
        reply = gateway.call("POST", "/api/v1/events/batch", {"events": events}, key=key)
        assert reply.body["failed"] == 0, reply.text
        ids += [UUID(item["event"]["event_id"]) for item in reply.body["results"]]
    return ids


def deliver(
    database: Database, sonas: Sequence[UUID], order: Sequence[tuple[str, int]], events: list[UUID],
    vectors: list[list[float]],
) -> None:  # fmt: skip
    """Store vectors and memberships as the worker and a request do."""
    access = database.connect_as(Caller.background("acme"))
    for kind, n in order:
        with access.transaction():
            if kind == "vector":
                text = json.dumps(vectors[n])
                params = {"space": SPACE, "vector": text, "event_id": events[n]}
                access.execute(STORE_VECTOR, params)
                store_members.count_members(access, [events[n]], SPACE)
            else:
                store_members.add_members(access, sonas[int(kind)], [events[n]], SPACE)


def make_sonas(access: TenantDb, count: int) -> list[UUID]:
    ids = [UUID(int=n + 1) for n in range(count)]
    with access.transaction():
        for sona_id in ids:
            store_sonas.insert_sona(access, sona_id)
    return ids


def differences(database: Database, base: ScratchDatabase, sonas: Sequence[UUID]) -> list[str]:
    """Where a stored place is not that of its memories, for each of the viewers."""
    found: list[str] = []
    for sona_id in sonas:
        for viewer in VIEWERS:
            access = database.connect_as(Caller("acme", viewer))
            place = store_sonas.read_place(access, sona_id, SPACE)
            rows = base.rows(
                "select v.embedding::text from sona_members m join event_vectors v"
                " using (tenant_id, event_id) where m.sona_id = %s and v.space = %s"
                " and m.participants @> %s::text[]",
                *(sona_id, SPACE, list(viewer)),
            )
            vectors = [json.loads(text) for (text,) in rows]
            if place.memories != len(vectors):
                found.append(f"{sona_id} for {viewer}: {place.memories} of {len(vectors)}")
            elif vectors:
                means = [math.fsum(column) / len(vectors) for column in zip(*vectors, strict=True)]
                centroid: list[float] = json.loads(place.centroid or "[]")
                apart = max(abs(a - b) for a, b in zip(centroid, means, strict=True))
                if apart > TOLERANCE:
                    found.append(f"{sona_id} for {viewer}: off by {apart}")
    return found


@pytest.mark.parametrize("seed", range(3))
def test_centroids_are_what_one_computes_from_nothing(
    gateway: Gateway, scratch_db: ScratchDatabase, scaled: Callable[[int], int], seed: int
) -> None:
    """Shuffled, every delivery twice, by four workers at once."""
    rng = random.Random(seed)
    events = tell(gateway, scaled(2000))
    vectors = [unit_vector(rng) for _ in events]
    sonas = make_sonas(gateway.database.connect_as(Caller.background("acme")), 3)
    order = [("vector", n) for n in range(len(events))]
    order += [(str(rng.randrange(3)), rng.randrange(len(events))) for _ in events]
    order += order
    rng.shuffle(order)
    with closing(Database(scratch_db.url)) as database, ThreadPoolExecutor(4) as pool:
        shares = [order[n::4] for n in range(4)]
        for done in [
            pool.submit(deliver, database, sonas, share, events, vectors) for share in shares
        ]:
            done.result()
        assert differences(database, scratch_db, sonas) == []
        print(f"  {len(events)} events, {len(order)} deliveries of vectors and memberships")
        _merge_and_forget(database, scratch_db, sonas, events)


def _merge_and_forget(
    database: Database, base: ScratchDatabase, sonas: list[UUID], events: list[UUID]
) -> None:
    """After a merge each memory counts once, and after it is forgotten not at all."""
    access = database.connect_as(Caller.background("acme"))
    with access.transaction():
        store_members.drop_shared_members(access, sonas[1], sonas[0])
        store_sonas.merge_sona(access, sonas[1], sonas[0])
    total = store_sonas.read_place(access, sonas[0], SPACE).memories
    distinct = base.rows(
        "select count(distinct event_id) from sona_members where sona_id = any (%s)", sonas[:2]
    )
    assert distinct == [(total,)]
    half = events[::2]
    with access.transaction():
        assert store_members.forget_events(access, half)["sona_members"] > 0
    assert base.rows("select from sona_members where event_id = any (%s::uuid[])", half) == []
    assert differences(database, base, [sonas[2]]) == []


def test_a_sum_that_forgets_what_it_counted_is_noticed(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """Planted: a redelivery finds its event uncounted."""
    (event,) = events = tell(gateway, 1)
    access = gateway.database.connect_as(Caller.background("acme"))
    sonas = make_sonas(access, 1)
    vectors: list[Any] = [unit_vector(random.Random(1))]
    order = [("vector", 0), ("0", 0)]
    deliver(gateway.database, sonas, order + order, events, vectors)
    assert differences(gateway.database, scratch_db, sonas) == []
    scratch_db.rows("update sona_members set counted_in = '{}'")
    with access.transaction():
        store_members.count_members(access, [event], SPACE)
    assert differences(gateway.database, scratch_db, sonas) != []
