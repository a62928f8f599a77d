"""Who may touch which row, told twice: by Postgres under row-level security, and by us.

`breaches` compares the two for one caller, table and verb; no list of tables is kept by hand.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, LiteralString, cast

import psycopg
from psycopg import Connection, errors, sql

from strandline.aws.blobs import BlobStore
from strandline.chains.fold_scope import close_idle_lanes
from strandline.config import get_settings
from strandline.db.database import Caller, Database
from tests.strandline.embeddings.fake_embedders import WordEmbedder, make_worker
from tests.support import APP, Gateway, ScratchDatabase, user_message

type Verb = Literal["select", "update", "delete", "insert"]
VERBS: tuple[Verb, ...] = ("select", "update", "delete", "insert")
PEOPLE = ("user:alice", "user:bob")
TENANTS = ("acme", "globex")

CALLERS = tuple(
    Caller(tenant, tuple(sorted(viewer)), writer)
    for tenant in (*TENANTS, "nobody", "acme' or true --")
    for viewer in (
        (),
        ("user:alice",),
        ("user:bob",),
        ("user:alice", "user:bob"),
        ("agent:helper",),
        ("agent:helper", "user:bob"),
        ("user:alice}",),
        ('user:"alice", \\{*}',),
    )
    for writer in ("*", "user:alice", "user:bob")
)


@dataclass(frozen=True)
class Row:
    """A row as it really lies in the database."""

    text: str
    """The columns that the application may read, as JSON."""
    full: Mapping[str, Any]

    def belongs_to(self, caller: Caller) -> bool:
        """The rule of isolation, in our own words."""
        if self.full["tenant_id"] != caller.tenant:
            return False
        if "participants" in self.full:
            return set(caller.viewer) <= set(self.full["participants"])
        return "writer" not in self.full or self.full["writer"] == caller.writer


@dataclass(frozen=True)
class Table:
    """A table of the public schema that holds tenants' rows, and what the application may do."""

    name: str
    readable: Sequence[str]
    insertable: Sequence[str]
    updatable: Sequence[str]
    deletable: bool
    rows: Sequence[Row]


TENANTS_TABLES = """
    select c.relname::text from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
        and a.attname = 'tenant_id' and not a.attisdropped
    order by 1
"""
TABLES_OF_A_SCOPE = """
    select c.relname::text from pg_class c
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and (
        select count(*) = 2 from pg_attribute a where a.attrelid = c.oid
            and a.attname in ('scope_id', 'participants') and not a.attisdropped)
    order by 1
"""
_COLUMNS = """
    select a.attname::text, has_column_privilege(%(role)s, c.oid, a.attnum, 'select'),
        has_column_privilege(%(role)s, c.oid, a.attnum, 'insert') and a.attgenerated = '',
        has_column_privilege(%(role)s, c.oid, a.attnum, 'update') and a.attgenerated = '',
        has_table_privilege(%(role)s, c.oid, 'delete')
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.oid = %(table)s::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
"""


def tables(admin: Connection[Any], role: str = APP) -> list[Table]:
    """Every table with a tenant_id, with all that lies in it: as the superuser sees it."""
    results: list[Table] = []
    for (name,) in admin.execute(TENANTS_TABLES).fetchall():
        columns = admin.execute(_COLUMNS, {"role": role, "table": name}).fetchall()
        readable = [column for column, select, *_ in columns if select]
        rows = admin.execute(
            sql.SQL(
                "select to_jsonb(r)::text, to_jsonb(t) from {0} t, lateral (select {1}) r"
            ).format(
                sql.Identifier(name),
                sql.SQL(", ").join(sql.Identifier("t", column) for column in readable),
            )
        ).fetchall()
        results.append(
            Table(
                name,
                readable,
                [column for column, _, insert, *_ in columns if insert],
                [column for column, _, _, update, _ in columns if update],
                columns[0][4],
                [Row(text, full) for text, full in rows],
            )
        )
    return results


def ask(connection: Connection[Any], tenant: str, viewer: str, writer: str) -> None:
    """Set who asks, for this transaction."""
    connection.execute(
        "select set_config('strandline.tenant', %s, true),"
        " set_config('strandline.viewer', %s, true), set_config('strandline.writer', %s, true)",
        (tenant, viewer, writer),
    )


def viewer_text(viewer: Sequence[str]) -> str:
    """A set of participants as Postgres reads an array: quoted here in another way than db.py."""
    copies = (name.replace("\\", "\\\\").replace('"', '\\"') for name in viewer)
    return "{" + ",".join(f'"{name}"' for name in copies) + "}"


def breaches(
    connection: Connection[Any], table: Table, verb: Verb, caller: Caller, chance: random.Random
) -> Iterator[str]:
    """One statement without any predicate, as `caller`: what of it the rule does not allow, and
    what the rule allows and the database does not. Everything is rolled back."""
    own = [row for row in table.rows if row.belongs_to(caller)]
    foreign = [row for row in table.rows if not row.belongs_to(caller)]
    with connection.transaction(force_rollback=True):
        ask(connection, caller.tenant, viewer_text(caller.viewer), caller.writer)
        view = _attempt(
            connection, table, verb, chance.choice(foreign) if foreign else None, chance
        )
    if verb == "insert":
        if view:
            yield f"{caller} inserted a foreign row into {table.name}"
    elif view is not None and verb == "select":
        if Counter(view) != Counter(row.text for row in own):
            yield f"{caller} read {len(view)} rows of {table.name}, {len(own)} are in view"
    elif view is not None and len(view) != len(own):
        yield f"{caller} could {verb} {len(view)} rows of {table.name}, {len(own)} are in view"


def forgeries(connection: Connection[Any], table: Table) -> list[str]:
    """Rows that bob, whom his tenant's policies let name participants of his own, could insert into
    scopes that are of others than they say; everything is rolled back. Bob's own row, said as it
    is, must get past the policies."""
    results: list[str] = []
    bob = Caller("acme", ("user:bob",), "user:bob")
    of_scopes = [row for row in table.rows if row.full["scope_id"] is not None]
    foreign = next(row for row in of_scopes if not row.belongs_to(bob) and _of(row, bob.tenant))
    other = next(row for row in of_scopes if not _of(row, bob.tenant))
    own = next(row for row in of_scopes if row.belongs_to(bob))
    members = own.full["participants"]
    forged: dict[str, tuple[Row, dict[str, Any]]] = {
        "into a scope without him": (foreign, {"participants": ["user:bob"]}),
        "into another tenant's": (other, {"participants": ["user:bob"]}),
        "shown to more than his scope": (own, {"participants": [*members, "user:zoe"]}),
        "shown to fewer": (own, {"participants": ["user:bob", "user:yan"]}),
        "in another order": (own, {"participants": [*members[1:], members[0], members[0]]}),
    }
    if "participant" in table.insertable:
        forged["with a member that it lacks"] = (own, {"participant": "user:zoe"})
        for _, change in forged.values():
            change.setdefault("participant", "user:bob")
    for kind, (row, change) in forged.items():
        if _insert(connection, table, bob, {**row.full, "tenant_id": "acme", **change}):
            results.append(f"{table.name}: a row {kind}")
    if not _insert(connection, table, bob, own.full):
        results.append(f"{table.name}: bob's own row is refused")
    return results


def _of(row: Row, tenant: str) -> bool:
    return row.full["tenant_id"] == tenant


def _insert(
    connection: Connection[Any], table: Table, caller: Caller, full: Mapping[str, Any]
) -> bool:
    """Whether the policies let this row pass, whatever the constraints say then."""
    with connection.transaction(force_rollback=True):
        ask(connection, caller.tenant, viewer_text(caller.viewer), caller.writer)
        return _random_refusal(connection, _insertion(table, full)) is not None


def _insertion(table: Table, full: Mapping[str, Any]) -> sql.Composed:
    return sql.SQL("insert into {} ({}) values ({})").format(
        sql.Identifier(table.name),
        sql.SQL(", ").join(map(sql.Identifier, table.insertable)),
        sql.SQL(", ").join(sql.Literal(_as_text(full[column])) for column in table.insertable),
    )


def _attempt(
    connection: Connection[Any],
    table: Table,
    verb: Verb,
    foreign: Row | None,
    chance: random.Random,
) -> list[str] | None:
    """What the statement touched; None where the role may not do this at all."""
    name = sql.Identifier(table.name)
    if verb == "select":
        columns = sql.SQL(", ").join(map(sql.Identifier, table.readable))
        statement = sql.SQL("select to_jsonb(r)::text from (select {} from {}) r")
        return [text for (text,) in connection.execute(statement.format(columns, name)).fetchall()]
    if verb == "delete":
        if not table.deletable:
            return _random_refusal(connection, sql.SQL("delete from {}").format(name))
        return [""] * connection.execute(sql.SQL("delete from {}").format(name)).rowcount
    if verb == "update":
        if not table.updatable or not table.rows:
            return None
        column = chance.choice(table.updatable)
        value = _as_text(chance.choice(table.rows).full[column])
        # A value of its own and not `column = column`: that would need the right to read it.
        statement = sql.SQL("update {} set {} = {}").format(
            name, sql.Identifier(column), sql.Literal(value)
        )
        return [""] * connection.execute(statement).rowcount
    if foreign is None or not table.insertable:
        return None
    return _random_refusal(connection, _insertion(table, foreign.full))


def _random_refusal(connection: Connection[Any], statement: sql.Composed) -> list[str] | None:
    """None for a statement that the rights refuse. A constraint that refuses it comes after the
    policies, and would tell whether the row is there: that is one too many already."""
    try:
        with connection.transaction():
            return [""] * connection.execute(statement).rowcount
    except errors.InsufficientPrivilege:
        return None
    except errors.IntegrityError:
        return [""]


def _as_text(value: Any) -> str | None:
    """A JSON value as the literal of its column's type."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in cast("list[Any]", value)):
        # text[]: the one kind of array that these tables have; lists in JSON hold objects.
        return viewer_text(cast("list[str]", value))
    return json.dumps(value)


def all_breaches(
    connection: Connection[Any],
    among: Sequence[Table],
    cases: int,
    seed: int = 7,
    verbs: Sequence[Verb] = VERBS,
) -> Iterator[str]:
    """Of `cases` statements drawn from tables, verbs and callers."""
    chance = random.Random(seed)
    for _ in range(cases):
        draws = chance.choice(among), chance.choice(verbs), chance.choice(CALLERS)
        yield from breaches(connection, *draws, chance)


def populate(gateway: Gateway, base: ScratchDatabase) -> None:
    """Rows in every table, of two tenants, and in each of two principals with scopes of their own
    and shared ones. The same keys, sessions and payloads everywhere: what meets, meets here."""
    for tenant in TENANTS:
        for person in PEOPLE:
            _speak(gateway, tenant, person, gateway.key(tenant, person))
        _speak(gateway, tenant, None, gateway.key(tenant))
    gateway.sweep()
    _close_lanes(base)
    for tenant in TENANTS:
        gateway.run_job("builder", tenant)
    for tenant in TENANTS:  # so that every scope has work waiting again
        for who in _scopes(None):
            reply = gateway.call(
                "POST", "/api/v1/events", user_message("late", *who), key=gateway.key(tenant)
            )
            assert reply.status == 201
    with psycopg.connect(base.admin_url) as administrator:
        administrator.execute(
            "insert into lanes (tenant_id, scope_id, session_id, participants)"
            " select distinct tenant_id, scope_id, session_id, participants from events"
            " on conflict do nothing"
        )
        administrator.execute(
            "insert into decisions"
            " (tenant_id, decision_id, scope_id, participants, event_id, kind, body)"
            " select tenant_id, uuidv7(), scope_id, participants, event_id, 'idle', '{}'"
            " from events on conflict do nothing"
        )
        administrator.execute(
            "insert into space_figures (tenant_id, space, texts_version, figures)"
            " select tenant_id, 'other/16', 1, '{}' from tenants"
        )
        administrator.execute(
            "insert into topic_work select tenant_id, scope_id, participants, 1, now(), now(), 1"
            " from scopes on conflict do nothing"
        )
        administrator.execute(
            "insert into reference_answers select tenant_id, uuidv7(), participants, 1, '',"
            " '{}', now() from scopes"
        )
        administrator.execute(
            "insert into recalls (tenant_id, recall_id, chain_id, scope_id, participants,"
            " recalled_at) select tenant_id, uuidv7(), chain_id, scope_id, participants, now()"
            " from chains"
        )
        administrator.execute(
            "insert into recall_answers (tenant_id, recall_id, participants, asker, writer,"
            " event_ids, recalled_at) select tenant_id, uuidv7(), participants,"
            " participants[cardinality(participants)], '*', '{}', now() from scopes"
        )
        administrator.execute(
            "insert into event_uses (tenant_id, cited_id, asker_id, event_id, day, participants,"
            " impact) select tenant_id, event_id, scope_id, event_id, '2026-11-01', participants, 1"
            " from events"
        )
        for graph in (
            "insert into graph_observations (tenant_id, target_id, source_id, scope_id,"
            " participants, patch, trust, observed_at, valid_from) select tenant_id, event_id,"
            " event_id, scope_id, participants, '{}', 'user', now(), now() from events",
            "insert into graph_sources (tenant_id, target_id, source_id, event_id, scope_id,"
            " participants) select tenant_id, event_id, event_id, event_id, scope_id, participants"
            " from events",
            "insert into graph_nodes (tenant_id, node_id, scope_id, participants, type, name,"
            " name_hash, ordinal, identity, trust, valid_from, created_at, updated_at, space,"
            " embedding)"
            " select tenant_id, event_id, scope_id, participants, 'topic', 'a topic',"
            " sha256(event_id::text::bytea), 0, sha256(event_id::text::bytea), 'user', now(),"
            " now(), now(), 'a space', '[1,0]' from events",
            "insert into graph_edges (tenant_id, edge_id, scope_id, participants, from_id, to_id,"
            " type, trust, valid_from, created_at, last_seen) select o.tenant_id, o.event_id,"
            " o.scope_id, o.participants, o.event_id, p.event_id, 'RELATES_TO', 'user', now(),"
            " now(), now() from events o join events p on p.tenant_id = o.tenant_id"
            " and p.scope_id = o.scope_id and p.seq = o.seq + 1",
            "insert into topic_fields (tenant_id, node_id, field, scope_id, participants, revision,"
            " salience) select tenant_id, event_id, 'state', scope_id, participants, 1, 1"
            " from events",
            "insert into topic_field_revisions (tenant_id, node_id, field, revision, scope_id,"
            " participants, value, valid_from, event_id, recorded_at) select tenant_id, event_id,"
            " 'state', 1, scope_id, participants, '1', now(), event_id, now() from events",
            "insert into graph_communities (tenant_id, community_id, scope_id, participants, size,"
            " bridges, neighbours, analysed_at) select tenant_id, event_id, scope_id, participants,"
            " 2, 0, '[]', now() from events",
            "insert into graph_members (tenant_id, node_id, scope_id, participants, community_id,"
            " rank, bridge_score, is_bridge) select tenant_id, event_id, scope_id, participants,"
            " event_id, 1, 0, false from events",
            "insert into space_switches (tenant_id, begun_at, from_space, to_space) select"
            " tenant_id, now(), 'words/2', 'other/2' from tenants",
            "insert into graph_tenant_analyses (tenant_id, digest) select tenant_id, '' from"
            " tenants",
            "insert into graph_tenant_communities (tenant_id, community_id, size, bridges,"
            " neighbours, analysed_at) select tenant_id, event_id, 2, 0, '[]', now() from events",
            "insert into graph_tenant_members (tenant_id, node_id, community_id, rank,"
            " bridge_score, is_bridge) select tenant_id, event_id, event_id, 1, 0, false"
            " from events",
        ):
            administrator.execute(graph)
        for persona in (
            "insert into sonas (tenant_id, sona_id, writer) select tenant_id, uuidv7(), w.writer"
            " from tenants, unnest(array['*', 'user:alice', 'user:bob']) w (writer)",
            "insert into sona_names (tenant_id, writer, name_key, name, sona_id, place, space,"
            " embedding) select tenant_id, writer, 'accountant', 'Accountant', sona_id, 0,"
            " 'a space', '[1,0]' from sonas",
            "insert into sona_members (tenant_id, sona_id, event_id, scope_id, participants)"
            " select e.tenant_id, s.sona_id, e.event_id, e.scope_id, e.participants"
            " from events e join sonas s on s.tenant_id = e.tenant_id and s.writer = '*'"
            " where e.seq > 1",
            "insert into sona_centroids (tenant_id, sona_id, scope_id, space, participants, total,"
            " memories) select e.tenant_id, s.sona_id, e.scope_id, 'a space', e.participants,"
            " '[1,0]', 1 from scopes e join sonas s on s.tenant_id = e.tenant_id"
            " and s.writer = '*'",
            "insert into acts (tenant_id, sona_id, step, act_id, previous_id, event_id, scope_id,"
            " participants) select e.tenant_id, s.sona_id, row_number() over (partition by"
            " e.tenant_id order by e.event_id), e.event_id, e.event_id, e.event_id, e.scope_id,"
            " e.participants from events e join sonas s on s.tenant_id = e.tenant_id"
            " and s.writer = '*' where e.seq > 1",
            "insert into turns (tenant_id, turn_id, kind, participants, asked_by, request)"
            " select tenant_id, event_id, 'query', participants, '*', '{}' from events",
            "insert into turn_events (tenant_id, turn_id, event_id, part, participants)"
            " select tenant_id, event_id, event_id, 'source', participants from events",
        ):
            administrator.execute(persona)
        administrator.execute(
            "insert into dropped_chain_state (tenant_id, chain_id, scope_id, participants,"
            " version, strength,"
            " accessed_at) select tenant_id, chain_id, scope_id, participants, 9, 2, now()"
            " from chains"
        )
        administrator.execute(
            "insert into chain_vectors"
            " select tenant_id, 'another space', scope_id, chain_id, participants, '[1]'"
            " from chains"
        )
        for jobs_and_removals in (
            "insert into jobs (tenant_id, job_id, kind, run, state, finished_at)"
            " select tenant_id, uuidv7(), 'archiver', 'run of ' || tenant_id, 'done', now()"
            " from tenants",
            "insert into job_shards (tenant_id, job_id, shard)"
            " select tenant_id, job_id, 1 from jobs",
            "insert into jobs (tenant_id, job_id, kind, state, scope_id, participants, ref)"
            " select tenant_id, uuidv7(), 'enrich', 'failed', scope_id, participants, scope_id"
            " from scopes",
            "insert into blob_removals (tenant_id, cid) select tenant_id, 'old' from tenants",
            "insert into blob_scans (tenant_id) select tenant_id from tenants",
            "insert into certificate_principals (tenant_id, certificate_id, subject, issuer,"
            " user_name, scopes) select tenant_id, uuidv7(), 'CN=alice,O=' || tenant_id, issuer,"
            " 'user:alice', array['read'] from tenants, (values (null), ('CN=ca')) i (issuer)",
        ):
            administrator.execute(jobs_and_removals)
        for erasure in (
            "insert into erasures (tenant_id, erasure_id, participants, kind, target, asked_at,"
            " asked_by, hidden_at, due_at) select tenant_id, scope_id, participants, 'scope', '{}',"
            " now(), '{}', now(), now() from scopes",
            # of a scope that is not there: nothing is out of view, and all is looked at
            "insert into erasure_marks (tenant_id, erasure_id, n, members, scope_id,"
            " recorded_until) select tenant_id, scope_id, 1, participants, uuidv7(), now()"
            " from scopes",
            "insert into erased_events (tenant_id, scope_id, n, participants, event_id, seq,"
            " erasure_id, erased_at) select tenant_id, scope_id, seq, participants, uuidv7(), seq,"
            " scope_id, now() from events",
            "insert into erased_acts (tenant_id, act_id, sona_id, step, scope_id, participants)"
            " select tenant_id, uuidv7(), sona_id, step + 1000, scope_id, participants from acts",
            "insert into erased_keys select tenant_id, writer, sha256(source_event_key::bytea),"
            " event_id from event_keys on conflict do nothing",
            "insert into erased_chains (tenant_id, chain_id, scope_id, participants, erasure_id,"
            " was_promoted) select tenant_id, chain_id, scope_id, participants, scope_id, false"
            " from chains",
            "insert into erased_payloads (tenant_id, object, erasure_id) select tenant_id,"
            " scope_id::text, scope_id from scopes",
        ):
            administrator.execute(erasure)
        for rates_and_ledger in (
            "insert into model_rates select tenant_id, scope_id::text, now(), 1 from scopes",
            "insert into waits select tenant_id, uuidv7(), 'query', now() from tenants",
            "insert into model_states select tenant_id, 'openai:tiny', 'text', 1 from tenants",
            "insert into monthly_spend select tenant_id, '2026-11-01', 1, 0, 1, 1, 0.1"
            " from tenants",
            "insert into model_calls select tenant_id, uuidv7(), now(), 'topic', 'openai:tiny',"
            " 'topic/1', 1, 1, 0.1, 1, 'ok', scope_id from scopes",
        ):
            administrator.execute(rates_and_ledger)


def _close_lanes(base: ScratchDatabase) -> None:
    """Every lane becomes a chain: nobody will have said anything for years."""
    with closing(Database(base.url)) as database:
        worker = make_worker(database, BlobStore(get_settings().bucket), WordEmbedder())
        for tenant in TENANTS:
            assert close_idle_lanes(worker, tenant, datetime(2040, 1, 1, tzinfo=UTC)) > 0


def _scopes(person: str | None) -> list[list[str]]:
    scopes = [
        ["user:alice"],
        ["user:bob"],
        ["user:alice", "agent:helper"],
        ["user:bob", "agent:helper"],
        ["user:alice", "user:bob", "agent:helper"],
    ]
    return [who for who in scopes if person is None or person in who]


def _speak(gateway: Gateway, tenant: str, person: str | None, key: str) -> None:
    upload_body = {"size": 7, "sha256": "ab" * 32, "name": f"{tenant}'s {person}"}
    assert gateway.call("POST", "/api/v1/uploads", upload_body, key=key).status == 201
    for place, who in enumerate(_scopes(person)):
        speaker = person or who[0]
        session = {"session_id": f"session-{len(who)}-{who[0]}", "speaker": speaker}
        first = gateway.call(
            "POST",
            "/api/v1/events",
            user_message(
                f"the harbour of {who[0]}", *who, source_event_key=f"key-{place}", **session
            ),
            key=key,
        )
        assert first.status == 201, first.text
        citations = [{"event_id": first.body["event_id"], "weight": 0.5}]
        batch = [
            user_message("the tide comes", *who, edges=citations, **session),
            user_message(f"{'a long log line. ' * 4200}{tenant}", *who, speaker=speaker),
        ]
        reply = gateway.call("POST", "/api/v1/events/batch", {"events": batch}, key=key)
        assert reply.body["failed"] == 0, reply.text


def rows(connection: Connection[Any], statement: LiteralString, *params: object) -> list[Any]:
    """A query's first column."""
    return [row[0] for row in connection.execute(statement, params).fetchall()]
