"""A synthetic tenant of any size, written straight into the tables: how recall grows is measured
on it. Texts have words as frequent as those of people (Zipf), vectors lie in clusters."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import numpy as np
import psycopg
from pgvector import HalfVector
from pgvector.psycopg import register_vector

from strandline.embeddings.embedder import LOCAL_DIMENSIONS, LOCAL_MODEL, Purpose
from strandline.participants import derive_scope_id
from tests.support import ScratchDatabase

SPACE = f"{LOCAL_MODEL}/{LOCAL_DIMENSIONS}"
AGENT = "agent:helper"
"""In every scope."""
_VOCABULARY = 20_000
_CLUSTERS = 200
_LATENT = 48
"""Vectors of texts vary in fewer directions than they have dimensions: in those of the model, the
same for every tenant."""
_EVENTS_OF_A_SESSION = 50
_WORDS = (3, 8)
"""So many words a question has, of the text of the event that it is about."""
_FIRST = datetime(2025, 1, 1, tzinfo=UTC)

type Matrix = np.ndarray[tuple[int, int], np.dtype[np.float32]]
type Row = np.ndarray[tuple[int], np.dtype[np.float32]]


@dataclass(frozen=True)
class SyntheticTenant:
    """What was stored: event n has id, text, vector and the number of its scope."""

    name: str
    scope_ids: Sequence[UUID]
    event_ids: Sequence[UUID]
    texts: Sequence[str]
    vectors: Matrix
    clusters: "Clusters"

    def user(self, scope: int) -> str:
        """The user of scope `scope`, who is in no other."""
        return f"user:p{scope}"

    def scope_of(self, event: int) -> int:
        """Events fall into the scopes in turn."""
        return event % len(self.scope_ids)

    def events_in(self, scope: int | None) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """The numbers of the events of a scope; of all by default."""
        step = len(self.scope_ids)
        return np.arange(scope or 0, len(self.event_ids), 1 if scope is None else step)


class Clusters:
    """Where vectors lie: near one of some centres, and around it mostly in a few directions."""

    def __init__(self, chance: np.random.Generator) -> None:
        self._chance = chance
        self._centres = _unit(chance.standard_normal((_CLUSTERS, LOCAL_DIMENSIONS)))
        one_model = np.random.default_rng(0)
        self._directions = one_model.standard_normal((_LATENT, LOCAL_DIMENSIONS))

    def draw(self, count: int, run: int = 1) -> Matrix:
        """So many vectors, as halfvec stores them; each `run` of them lies around one centre."""
        numbers = self._chance.integers(0, _CLUSTERS, -(-count // run))
        centres = self._centres[np.repeat(numbers, run)[:count]]
        vectors: Matrix = np.empty((count, LOCAL_DIMENSIONS), np.float32)
        for start in range(0, count, 20_000):  # the whole at once would take gigabytes
            part = slice(start, min(start + 20_000, count))
            size = part.stop - part.start
            latent = self._chance.standard_normal((size, _LATENT)) @ self._directions
            noise = self._chance.standard_normal((size, LOCAL_DIMENSIONS))
            vectors[part] = _unit(0.6 * centres[part] + 0.7 * _unit(latent) + 0.35 * _unit(noise))
        return np.asarray(np.asarray(vectors, np.float16), np.float32)

    def near(self, vector: Row) -> Row:
        """A question's vector: like the event's, and a quarter of another."""
        return _unit(0.75 * vector + 0.25 * self.draw(1)[0])


def _unit(vectors: Any) -> Any:
    lengths = cast("Any", np.linalg.norm(vectors, axis=-1, keepdims=True))
    return (vectors / lengths).astype(np.float32)


@dataclass(frozen=True)
class View:
    """Who asks, and what they see: one scope, or all of the tenant."""

    layout: str
    tenant: SyntheticTenant
    participant: str
    scope: int | None


@dataclass(frozen=True)
class Asking:
    """A question with its vector."""

    text: str
    vector: Row


class StoredVectors:
    """An embedder that knows the questions' vectors: embedding costs nothing."""

    space = SPACE
    dimensions = LOCAL_DIMENSIONS

    def __init__(self) -> None:
        self.vectors: dict[str, list[float]] = {}

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """The vectors of these texts, in order."""
        return [self.vectors[text] for text in texts]


def list_questions(view: View, count: int, clusters_of: SyntheticTenant) -> Iterator[Asking]:
    """Questions of words of an event in view each; the vectors are near it, or, with the clusters
    of another tenant, near one of that one's events."""
    chance = random.Random(count)
    in_view = view.tenant.events_in(view.scope)
    is_own = clusters_of is view.tenant
    for n in range(count):
        about = int(chance.choice(in_view))
        words = view.tenant.texts[about].split()
        chance.shuffle(words)
        text = f"{n} {' '.join(words[: chance.randint(*_WORDS)])}"
        near = about if is_own else chance.randrange(len(clusters_of.event_ids))
        yield Asking(text, clusters_of.clusters.near(clusters_of.vectors[near]))


def make_tenant(name: str, events: int, scopes: int, seed: int, *, run: int = 1) -> SyntheticTenant:
    """A tenant of `events` in at most so many `scopes`, the same for the same seed. Each `run` of
    events has vectors around one centre."""
    chance = np.random.default_rng(seed)
    clusters = Clusters(chance)
    ids = random.Random(seed)
    moments = (int((_FIRST + timedelta(minutes=n)).timestamp() * 1000) for n in range(events))
    return SyntheticTenant(
        name,
        [derive_scope_id(name, [AGENT, f"user:p{n}"]) for n in range(min(scopes, events))],
        [
            UUID(
                int=moment << 80
                | 7 << 76
                | ids.getrandbits(12) << 64
                | 2 << 62
                | ids.getrandbits(62)
            )
            for moment in moments
        ],
        list(_texts(chance, events)),
        clusters.draw(events, run),
        clusters,
    )


def _texts(chance: np.random.Generator, count: int) -> Iterator[str]:
    """Texts of 8 to 20 words; the n-th word of the vocabulary is n times rarer than the first."""
    syllables = [c + v for c in "bdfgklmnprtvz" for v in "aeiou"]
    words = random.Random(1).sample(
        [a + b + c for a in syllables for b in syllables for c in syllables[:8]], _VOCABULARY
    )
    shares = np.cumsum(1 / np.arange(1, _VOCABULARY + 1))
    lengths = chance.integers(8, 21, count)
    draw = np.searchsorted(shares / shares[-1], chance.random(int(lengths.sum())))
    start = 0
    for length in lengths.tolist():
        numbers: list[int] = draw[start : start + length].tolist()
        yield " ".join(words[n] for n in numbers)
        start += length


def load_tenant(base: ScratchDatabase, tenant: SyntheticTenant) -> None:
    """Store it as superuser, without triggers: rows as append and worker leave them, everything
    embedded and indexed."""
    with psycopg.connect(base.admin_url) as administrator:
        register_vector(administrator)
        administrator.execute("set local session_replication_role = replica")
        administrator.execute("set local work_mem = '256MB'")
        administrator.execute(
            "create temp table staged (n int, scope_id uuid, event_id uuid, content text,"
            " embedding halfvec) on commit drop"
        )
        copy_rows = "copy staged from stdin (format binary)"
        with administrator.cursor() as cursor, cursor.copy(copy_rows) as copy:
            copy.set_types(["int4", "uuid", "uuid", "text", "halfvec"])
            for n, event_id in enumerate(tenant.event_ids):
                scope_id = tenant.scope_ids[tenant.scope_of(n)]
                copy.write_row(
                    (n, scope_id, event_id, tenant.texts[n], HalfVector(tenant.vectors[n]))
                )
        params = {
            "tenant": tenant.name,
            "agent": AGENT,
            "scope_ids": list(tenant.scope_ids),
            "space": SPACE,
            "first": _FIRST,
            "session": _EVENTS_OF_A_SESSION,
        }
        for statement in _STATEMENTS:
            administrator.execute(statement, params)
    with psycopg.connect(base.admin_url, autocommit=True) as administrator:
        administrator.execute("vacuum analyze")


_STATEMENTS = (
    "insert into tenants (tenant_id) values (%(tenant)s) on conflict do nothing",
    """
    create temp table planned on commit drop as
    select %(tenant)s as tenant_id, s.scope_id, s.event_id, s.content, s.embedding,
        array[%(agent)s, 'user:p' || scope.n - 1] as participants,
        row_number() over (partition by s.scope_id order by s.n) as seq,
        %(first)s::timestamptz + s.n * interval '1 minute' as at
    from staged s join unnest(%(scope_ids)s::uuid[]) with ordinality scope (scope_id, n)
        using (scope_id)
    """,
    """
    insert into scopes (tenant_id, scope_id, participants, last_seq, folded_seq, max_folded_seq,
        indexed_seq, last_recorded_at)
    select tenant_id, scope_id, participants, count(*), count(*), count(*), count(*), max(at)
    from planned group by 1, 2, 3
    """,
    """
    insert into scope_members (tenant_id, participant, scope_id, participants)
    select tenant_id, who, scope_id, participants from scopes, unnest(participants) who
    where tenant_id = %(tenant)s
    """,
    """
    insert into embedding_progress (tenant_id, scope_id, space, participants, embedded_seq)
    select tenant_id, scope_id, %(space)s, participants, last_seq from scopes
    where tenant_id = %(tenant)s
    """,
    """
    insert into events (tenant_id, event_id, scope_id, seq, participants, session_id, channel, role,
        type, origin, speaker, writer, content, recorded_at, cid)
    select tenant_id, event_id, scope_id, seq, participants, 'session-' || seq / %(session)s,
        'http', case seq %% 2 when 0 then 'agent' else 'user' end, 'message',
        case seq %% 2 when 0 then 'agent' else 'user' end, participants[1 + seq %% 2], '*', content,
        at, 'cid-' || event_id
    from planned order by at
    """,
    """
    insert into event_search (tenant_id, scope_id, event_id, piece, start_char, end_char,
        participants, words)
    select tenant_id, scope_id, event_id, 0, 0, length(content), participants,
        event_tsvector(split_part(participants[1 + seq %% 2], ':', 2), content)
            || setweight(to_tsvector('pg_catalog.english', to_char(at at time zone 'UTC',
                'FMDD FMMonth YYYY')), 'C')
    from planned order by at
    """,
    """
    insert into event_vectors (tenant_id, space, scope_id, event_id, participants, embedding)
    select tenant_id, %(space)s, scope_id, event_id, participants, embedding
    from planned order by at
    """,
)
