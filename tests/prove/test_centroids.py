"""A sona's place is a function of what it was active in: whatever the order in which vectors and
memberships come, however often, and by how many at once, it is what one computes from nothing."""

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest

from strandline.db.database import Caller, Database, TenantDb
from strandline.personas import store_memories, store_sonas
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
                store_memories.add_vectors_to_centroids(access, [events[n]], SPACE)
            else:
                store_memories.insert_sona_memories(access, sonas[int(kind)], [events[n]], SPACE)


def make_sonas(access: TenantDb, count: int) -> list[UUID]:
    ids = [UUID(int=n + 1) for n in range(count)]
    with access.transaction():
        for sona_id in ids:
            store_sonas.insert_sona(access, sona_id)
    return ids


def differences(database: Database, base: ScratchDatabase, sonas: Sequence[UUID]) -> list[str]:
    """Where a stored place is not that of its memories: joined for each of the viewers, and in each
    scope. A merged sona's are those of all that became it, each once."""
    results: list[str] = []
    for sona_id in sonas:
        rows = base.rows(
            "select distinct m.event_id, m.scope_id, m.participants, v.embedding::text"
            " from sona_members m join event_vectors v using (tenant_id, event_id)"
            " join sonas s using (tenant_id, sona_id)"
            " where %s in (s.sona_id, s.merged_into) and v.space = %s",
            *(sona_id, SPACE),
        )
        for viewer in VIEWERS:
            access = database.connect_as(Caller("acme", viewer))
            place = store_sonas.read_sona_centroid(access, sona_id, SPACE)
            vectors = [row[3] for row in rows if {*viewer} <= {*row[2]}]
            centroid: list[float] = json.loads(place.centroid or "[]")
            results += compare(f"{sona_id} for {viewer}", place.memories, centroid, vectors)
        scopes: dict[UUID, list[str]] = defaultdict(list)
        for _, scope_id, _, vector in rows:
            scopes[scope_id].append(vector)
        sums = base.rows(
            "select c.scope_id, sum(c.memories)::int, sum(c.total)::text from sona_centroids c"
            " join sonas s using (tenant_id, sona_id)"
            " where %s in (s.sona_id, s.merged_into) and c.space = %s group by 1",
            *(sona_id, SPACE),
        )
        assert {scope_id for scope_id, *_ in sums} == scopes.keys()
        for scope_id, count, total in sums:
            centroid = [part / count for part in json.loads(total)]
            results += compare(f"{sona_id} in {scope_id}", count, centroid, scopes[scope_id])
    return results


def compare(what: str, count: int, centroid: list[float], vectors: Sequence[str]) -> list[str]:
    """In what a stored place differs from the mean of these vectors."""
    if count != len(vectors):
        return [f"{what}: {count} of {len(vectors)}"]
    if not vectors:
        return [f"{what}: a place without memories"] if centroid else []
    columns = zip(*map(json.loads, vectors), strict=True)
    means = [math.fsum(column) / len(vectors) for column in columns]
    apart = max(abs(a - b) for a, b in zip(centroid, means, strict=True))
    return [f"{what}: off by {apart}"] if apart > TOLERANCE else []


def memberships(base: ScratchDatabase, family: Sequence[UUID]) -> list[UUID]:
    """The events that these sonas were active in, as often as it is stored."""
    rows = base.rows("select event_id from sona_members where sona_id = any (%s)", [*family])
    return sorted(event_id for (event_id,) in rows)


@pytest.mark.parametrize("seed", range(3))
def test_centroid_equals_recomputation(
    gateway: Gateway, scratch_db: ScratchDatabase, proof_size: Callable[[int], int], seed: int
) -> None:
    """Shuffled, every delivery twice, by four workers at once."""
    rng = random.Random(seed)
    events = tell(gateway, proof_size(2000))
    vectors = [unit_vector(rng) for _ in events]
    sonas = make_sonas(gateway.database.connect_as(Caller.background("acme")), 3)
    order = [("vector", n) for n in range(len(events))]
    order += [(str(rng.randrange(3)), rng.randrange(len(events))) for _ in events]
    order += order
    rng.shuffle(order)
    with closing(Database(scratch_db.url)) as database:
        deliver_at_once(database, sonas, order, events, vectors)
        assert differences(database, scratch_db, sonas) == []
        print(f"  {len(events)} events, {len(order)} deliveries of vectors and memberships")
        receipts = {events[n] for kind, n in order if kind in ("0", "1")}
        merge(database, sonas[1], sonas[0])
        assert memberships(scratch_db, sonas[:2]) == sorted(receipts), "each once"
        assert differences(database, scratch_db, sonas) == []
        rng.shuffle(order)
        late = [("1", n) for n in range(0, len(events), 7)]  # they are told of the merged one
        deliver_at_once(database, sonas, order[: len(events)] + late, events, vectors)
        receipts |= set(events[::7])
        assert memberships(scratch_db, sonas[:2]) == sorted(receipts), (
            "each once, and those told late"
        )
        assert differences(database, scratch_db, sonas) == []
        _forget(database, scratch_db, sonas, events[::2])


def deliver_at_once(
    database: Database, sonas: Sequence[UUID], order: Sequence[tuple[str, int]], events: list[UUID],
    vectors: list[list[float]],
) -> None:  # fmt: skip
    """By four workers."""
    with ThreadPoolExecutor(4) as pool:
        shares = [order[n::4] for n in range(4)]
        for future in [
            pool.submit(deliver, database, sonas, share, events, vectors) for share in shares
        ]:
            future.result()


def merge(database: Database, from_id: UUID, into_id: UUID) -> None:
    access = database.connect_as(Caller.background("acme"))
    with access.transaction():
        store_memories.delete_shared_memories_before_merge(access, from_id, into_id)
        store_sonas.mark_sona_merged_into(access, from_id, into_id)


def _forget(
    database: Database, base: ScratchDatabase, sonas: Sequence[UUID], removed_ids: Collection[UUID]
) -> None:
    """What is forgotten counts nowhere: not in the merged sona either."""
    access = database.connect_as(Caller.background("acme"))
    with access.transaction():
        assert (
            store_memories.delete_persona_rows_of_events(access, [*removed_ids])["sona_members"] > 0
        )
    assert not {*memberships(base, sonas)} & {*removed_ids}
    assert differences(database, base, sonas) == []


def test_centroid_test_detects_double_count_in_merge(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: what both sonas were active in stays in both; then in the sum alone, and then in the
    sum but not in its number."""
    events = tell(gateway, 5)[::4]  # of one scope
    vectors = [unit_vector(random.Random(n)) for n in range(2)]
    sonas = make_sonas(gateway.database.connect_as(Caller.background("acme")), 2)
    order = [("vector", 0), ("vector", 1), ("0", 0), ("1", 0), ("1", 1)]
    deliver(gateway.database, sonas, order, events, vectors)

    def drop_nothing(*_: object) -> None:
        """Both keep what they have."""

    monkeypatch.setattr(store_memories, "delete_shared_memories_before_merge", drop_nothing)
    merge(gateway.database, sonas[1], sonas[0])
    twice = "delete from sona_members where sona_id = %s and event_id = %s"
    for statement, *params in (
        ("select",),
        (twice, sonas[1], events[0]),
        ("update sona_centroids set memories = 1 where sona_id = %s", sonas[1]),
    ):
        scratch_db.rows(str(statement), *params)
        faults = differences(gateway.database, scratch_db, sonas[:1])
        assert len([fault for fault in faults if " in " in fault]) == 1
        assert [fault for fault in faults if " for ()" in fault]
    assert "off by" in faults[0]


def test_centroid_test_detects_forgotten_count(
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
        store_memories.add_vectors_to_centroids(access, [event], SPACE)
    assert differences(gateway.database, scratch_db, sonas) != []
