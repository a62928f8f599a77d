"""A tenant as large as promised, laid down in bulk: what lists, recall and worker are held to."""

import random
from dataclasses import dataclass
from uuid import UUID

import psycopg
from pgvector import HalfVector

from tests.support import ScratchDatabase

TENANT, OTHER = "acme", "globex"
SPACE, DIMENSIONS = "crowd/384", 384
WIDE, NARROW, SILENT, HELPER = "user:wide", "user:narrow", "user:gone", "agent:helper"
"""In a quarter of the scopes; in five; in a quarter, which all fell silent early; in all."""
UPLOADER = "user:uploader"
"""Who asked for half of the uploads, a tenth of which are past their time."""
COMMON, RARE = "harbour", "zebrafish"
"""A word of every tenth event, and one of every five-hundredth."""


@dataclass(frozen=True)
class LargeTenant:
    """How much was laid down, and some of it by name."""

    events: int
    scopes: int
    busiest: UUID
    """The scope with the most events, one of WIDE's and NARROW's."""
    participants: list[str]
    """Of that scope."""
    event_id: UUID
    cid: str
    blob_cid: str
    shared_cid: str
    """A payload of two in seven of the scopes."""
    upload_cid: str
    """Of a hundredth of the uploads of UPLOADER, each under its own name."""
    chained_scope_id: UUID
    """A scope of WIDE's with a chain."""


def fill_tenant(
    base: ScratchDatabase, events: int, scopes: int, *, is_in_statistics: bool = True
) -> LargeTenant:
    """Fill the database as the superuser, without triggers: rows as append and worker leave them,
    all embedded and indexed but the last of every fiftieth scope; a chain for every ten events, of
    which every twentieth was recalled just now; one chain of a scope holds all its events. The
    other tenant gets a tenth; the statistics know it alone, if they are not to know the first.
    Every tenant has changed its embedding space once."""
    rng = random.Random(3)
    pool = [HalfVector([rng.gauss(0, 1) for _ in range(DIMENSIONS)]) for _ in range(200)]
    with psycopg.connect(base.admin_url) as administrator:
        administrator.execute("set local session_replication_role = replica")
        administrator.execute("set local work_mem = '256MB'")
        administrator.execute("create temp table pool (n int primary key, embedding halfvec)")
        administrator.cursor().executemany(
            "insert into pool values (%s, %s::halfvec)",
            [(n, vector.to_text()) for n, vector in enumerate(pool)],
        )
        shares = [(TENANT, 1), (OTHER, 10)]
        for tenant, share in shares if is_in_statistics else reversed(shares):
            if tenant == TENANT and not is_in_statistics:
                administrator.execute(_ANALYZE_NO_MORE)
            params = {
                "tenant": tenant,
                "events": events // share,
                "scopes": scopes // share,
                "space": SPACE,
                "common": COMMON,
                "rare": RARE,
                "uploader": UPLOADER,
            }
            for statement in _FILL_STATEMENTS:
                administrator.execute(statement, params)
        administrator.execute(_OTHER_TENANTS, {"tenants": max(scopes // 4, 1000), "space": SPACE})
    with psycopg.connect(base.admin_url, autocommit=True) as administrator:
        administrator.execute("vacuum analyze" if is_in_statistics else "vacuum")
        named_rows = administrator.execute(_FIND_NAMED, {"tenant": TENANT}).fetchone()
    assert named_rows is not None
    return LargeTenant(events, scopes, *named_rows)


_ANALYZE_NO_MORE = """
    analyze;
    do $$ declare name regclass; begin
        for name in select oid from pg_class
            where relkind = 'r' and relnamespace = 'public'::regnamespace loop
            execute format('alter table %s set (autovacuum_enabled = off)', name);
        end loop;
    end $$
"""

# Scope n of N: the first quarter speaks in the first quarter of the time and never again (GONE is
# in all of it), every fourth one has WIDE in it. A tenth of the events falls into few, busy scopes.
_FILL_STATEMENTS = (
    "insert into tenants (tenant_id) values (%(tenant)s)",
    """
    insert into erasures (tenant_id, erasure_id, participants, kind, target, asked_at, asked_by,
        hidden_at, cleared_at, completed_at, receipt, signature)
    select %(tenant)s, gen_random_uuid(), '{}', 'event', '{}', now(), '{}', now(), now(), now(),
        '{}', 'none'
    from generate_series(1, %(scopes)s)
    """,
    """
    create temp table scope_plan on commit drop as
    with planned as (select n, array(
        select who from unnest(array['agent:helper', 'user:p' || n,
            case when n %% 4 = 0 then 'user:wide' end,
            case when n <= %(scopes)s / 4 then 'user:gone' end,
            case when n %% (%(scopes)s / 5) = 0 then 'user:narrow' end]) who
        where who is not null order by who collate "C") as participants
    from generate_series(1, %(scopes)s::int) n),
    hashed as (select *, encode(sha256(convert_to(
        to_jsonb(array_prepend(%(tenant)s::text, participants))::text, 'UTF8')), 'hex') as hash
    from planned)
    select n, participants, (left(hash, 12) || '8' || substr(hash, 14, 3)
        || substr('89ab', 1 + (('x' || substr(hash, 17, 1))::bit(4)::int & 3), 1)
        || substr(hash, 18, 15))::uuid as scope_id
    from hashed
    """,
    """
    create temp table event_plan on commit drop as
    select i, n, row_number() over (partition by n order by i) as seq,
        now() - make_interval(secs => (%(events)s - i) * 10) as at,
        (select string_agg('word' || (1500 * power(random(), 3))::int, ' ')
         from generate_series(1, 14 + i * 0))
            || case when i %% 10 = 0 then ' ' || %(common)s else '' end
            || case when i %% 500 = 0 then ' ' || %(rare)s else '' end as content
    from (
        select i, case
            when i <= %(scopes)s / 4 then i
            when i <= %(events)s / 4 then 1 + floor(random() * (%(scopes)s / 4))::int
            when i <= %(events)s / 4 + %(scopes)s * 3 / 4
                then %(scopes)s / 4 + i - %(events)s / 4
            when i %% 10 = 0
                then %(scopes)s - (i / 10) %% 20 * (%(scopes)s / 40)
            else 1 + %(scopes)s / 4 + floor(random() * (%(scopes)s * 3 / 4))::int
        end as n
        from generate_series(1, %(events)s::int) i) i
    """,
    """
    insert into scopes (tenant_id, scope_id, participants, last_seq, folded_seq, last_recorded_at,
        created_at)
    select %(tenant)s, s.scope_id, s.participants, e.last_seq, e.last_seq, e.last_at, e.first_at
    from scope_plan s join (
        select n, max(seq) as last_seq, max(at) as last_at, min(at) as first_at
        from event_plan group by n) e using (n)
    """,
    """
    insert into chains (tenant_id, chain_id, scope_id, participants, session_id, version, status,
        archived_at, last_event_at, created_at, importance, density, accessed_at, cold_at,
        promote_until)
    select %(tenant)s, md5(%(tenant)s || 'chain' || i)::uuid, s.scope_id, s.participants,
        'session-' || i %% 9, 1, k.status, case when k.status = 'archived' then now() end,
        now() - i * interval '1 min', now() - i * interval '1 min', 0.5, 0.5,
        now() - i * interval '1 min',
        now() + case when i %% 50 = 7 then -1 else 1 end * i * interval '1 min', now()
    from generate_series(1, %(events)s / 10) i
    join scope_plan s on s.n = 1 + i %% %(scopes)s,
        lateral (select case i %% 10 when 4 then 'rejected' when 5 then 'archived' else 'active' end
            as status) k
    """,
    """
    insert into recalls (tenant_id, recall_id, chain_id, scope_id, participants, recalled_at,
        folded_at)
    select c.tenant_id, md5(c.chain_id::text || r)::uuid, c.chain_id, c.scope_id, c.participants,
        now() - r * interval '2 days',
        case when r > 0 then now() - (r * 2 - 1) * interval '1 day' end
    from chains c, generate_series(0, 16) r
    where c.tenant_id = %(tenant)s and case when r = 0
        then c.chain_id < '0ccccccc-0000-0000-0000-000000000000'
        else c.chain_id > 'c0000000-0000-0000-0000-000000000000' end
    """,
    """
    insert into recall_answers (tenant_id, recall_id, participants, asker, writer, event_ids,
        recalled_at)
    select s.tenant_id, md5(s.scope_id::text || r)::uuid, s.participants,
        s.participants[cardinality(s.participants)], '*', '{}', now() - r * interval '1 hour'
    from scopes s, generate_series(0, 60, 20) r where s.tenant_id = %(tenant)s
    """,
    """
    insert into scope_members (tenant_id, participant, scope_id, participants)
    select %(tenant)s, who, scope_id, participants from scope_plan, unnest(participants) who
    """,
    """
    insert into events (tenant_id, event_id, scope_id, seq, participants, session_id, channel, role,
        type, origin, speaker, writer, content, metadata, recorded_at, cid)
    select %(tenant)s, md5(%(tenant)s || 'event' || i)::uuid, s.scope_id, e.seq, s.participants,
        'session-' || e.seq / 4, 'http', case when i %% 3 = 0 then 'agent' else 'user' end,
        'message', 'user', 'user:p' || n, '*', e.content, jsonb_build_object('pier', i %% 7), e.at,
        'cid-' || md5(%(tenant)s || i)
    from event_plan e join scope_plan s using (n) order by i
    """,
    """
    update events set blob_size = 9, mime_type = 'image/png', content = null, blob_cid = case
        when seq = 2 then 'cid-shared' else 'blob-' || md5(event_id::text) end
    where tenant_id = %(tenant)s and (seq = 3 and metadata = '{"pier": 3}'
        or seq = 2 and metadata in ('{"pier": 4}', '{"pier": 5}'))
    """,
    """
    insert into blobs (tenant_id, cid, writer, size)
    select distinct tenant_id, blob_cid, speaker, 9 from events
    where tenant_id = %(tenant)s and blob_cid is not null
    union all
    select %(tenant)s, 'uncited-' || n, 'user:p' || n %% 500, 9
    from generate_series(1, %(events)s / 10) n
    """,
    """
    insert into uploads (tenant_id, upload_id, writer, cid, size, file_name, remove_at, created_at)
    select %(tenant)s, md5(%(tenant)s || 'upload' || n)::uuid,
        case when n %% 2 = 0 then %(uploader)s else 'user:p' || n end,
        'cid-upload-' || n %% 100, 9, 'file ' || n,
        now() + case when n %% 10 = 4 then -1 else 1 end * n * interval '1 minute', '-infinity'
    from generate_series(1, %(events)s / 10) n
    """,
    """
    insert into audit_log (tenant_id, audit_id, at, route, outcome)
    select %(tenant)s, md5(%(tenant)s || 'audit' || n)::uuid, now() - n * interval '1 s',
        'GET /memories/list', 'done'
    from generate_series(1, %(events)s / 2) n
    """,
    """
    insert into event_search (tenant_id, scope_id, event_id, piece, start_char, end_char,
        participants, words)
    select tenant_id, scope_id, event_id, 0, 0, 0, participants,
        event_tsvector(split_part(speaker, ':', 2), coalesce(content, 'a file'))
            || setweight(to_tsvector('pg_catalog.english', to_char(
                recorded_at at time zone 'UTC', 'FMDD FMMonth YYYY')), 'C')
    from events where tenant_id = %(tenant)s
    """,
    """
    insert into event_keys (tenant_id, writer, channel, source_event_key, event_id, fingerprint)
    select tenant_id, '*', 'http', 'key-' || cid, event_id, '\\x00' from events
    where tenant_id = %(tenant)s and metadata = '{"pier": 1}'
    """,
    """
    insert into decisions (tenant_id, decision_id, scope_id, participants, event_id, kind, at_seq,
        body)
    select tenant_id, md5(event_id::text || 'decision')::uuid, scope_id, participants, event_id,
        case when seq %% 10 = 0 then 'echo' else 'continues' end, seq, '{}'
    from events where tenant_id = %(tenant)s and seq %% 2 = 0
    """,
    """
    insert into sessions (tenant_id, session_id, scope_id, participants, writer)
    select distinct tenant_id, session_id, scope_id, participants, '*' from events
    where tenant_id = %(tenant)s
    """,
    """
    insert into memory_edges (tenant_id, scope_id, participants, event_id, cited_id, cited_cid,
        weight)
    select e.tenant_id, e.scope_id, e.participants, e.event_id, c.event_id, c.cid, 0.5
    from events e join events c on c.tenant_id = e.tenant_id and c.scope_id = e.scope_id
        and c.seq = e.seq - 1
    where e.tenant_id = %(tenant)s and e.seq %% 3 = 0
    """,
    """
    insert into event_uses (tenant_id, cited_id, asker_id, event_id, day, participants, impact)
    select tenant_id, event_id, scope_id, event_id, now()::date - days, participants, 1
    from events, unnest(array[0, 20, 40]) days where tenant_id = %(tenant)s and seq %% 5 = 0
    """,
    """
    update recall_answers a set used = 9, event_ids = array(
        select event_id from events where tenant_id = a.tenant_id order by event_id limit 9)
    where tenant_id = %(tenant)s and recalled_at > now() - interval '1 minute'
    """,
    """
    insert into embedding_progress (tenant_id, scope_id, space, participants, embedded_seq)
    select %(tenant)s, scope_id, %(space)s, participants,
        last_seq - case when row_number() over () %% 50 = 0 then 1 else 0 end
    from scopes where tenant_id = %(tenant)s
    """,
    """
    insert into scope_work (tenant_id, scope_id, participants, due_at)
    select s.tenant_id, s.scope_id, s.participants, s.last_recorded_at
    from scopes s join embedding_progress p using (tenant_id, scope_id)
    where s.tenant_id = %(tenant)s and s.last_seq > p.embedded_seq
    """,
    """
    insert into event_vectors (tenant_id, space, scope_id, event_id, participants, embedding)
    select e.tenant_id, %(space)s, e.scope_id, e.event_id, e.participants, pool.embedding
    from events e join embedding_progress p using (tenant_id, scope_id)
    join pool on pool.n = abs(hashtext(e.event_id::text)) %% 200
    where e.tenant_id = %(tenant)s and e.seq <= p.embedded_seq
    """,
    """
    update scopes s set indexed_seq = p.embedded_seq from embedding_progress p
    where s.tenant_id = %(tenant)s and p.tenant_id = s.tenant_id and p.scope_id = s.scope_id
    """,
    """
    insert into event_texts (tenant_id, scope_id, event_id, participants, text)
    select e.tenant_id, e.scope_id, e.event_id, e.participants, fold_text(e.content)
    from events e join scopes s using (tenant_id, scope_id)
    where e.tenant_id = %(tenant)s and e.seq <= s.indexed_seq and e.content is not null
    """,
    """
    insert into chain_events
        (tenant_id, event_id, chain_id, scope_id, participants, seq, since_version)
    select e.tenant_id, e.event_id, c.chain_id, e.scope_id, e.participants, e.seq, 1
    from (select distinct on (scope_id) * from chains where tenant_id = %(tenant)s
          order by scope_id, chain_id) c
    join events e on e.tenant_id = c.tenant_id and e.scope_id = c.scope_id
    """,
    """
    insert into chain_versions (tenant_id, chain_id, version, scope_id, participants, session_id,
        created_at_seq, closed_by, first_seq, last_seq, event_count, started_at, last_event_at,
        topic,
        summary, entities, importance, density, quality, settings, models, content_hash, trust)
    select tenant_id, chain_id, 1, scope_id, participants, 'session-0', 1, 'break', 1, 1, 1,
        created_at, last_event_at, 'a topic', 'a summary', '[]', importance, density, 0.5, '{}',
        '{}', '', 'user'
    from chains where tenant_id = %(tenant)s
    """,
    """
    insert into chain_vectors (tenant_id, space, scope_id, chain_id, participants, embedding)
    select c.tenant_id, %(space)s, c.scope_id, c.chain_id, c.participants, pool.embedding
    from chains c join pool on pool.n = abs(hashtext(c.chain_id::text)) %% 200
    where c.tenant_id = %(tenant)s and c.status = 'active'
    """,
    """
    insert into embedding_cache (tenant_id, space, text_hash, event_id, participants, embedding)
    select v.tenant_id, v.space, sha256(v.event_id::text::bytea), v.event_id, v.participants,
        v.embedding
    from event_vectors v
    where v.tenant_id = %(tenant)s and v.event_id < '40000000-0000-0000-0000-000000000000'
    """,
    """
    insert into api_keys (tenant_id, key_id, secret_hash, scopes, created_at)
    select %(tenant)s, case when n = 7 then %(tenant)s || n else md5(%(tenant)s || n) end,
        sha256((%(tenant)s || n)::bytea), '{read}', now() - n * interval '1 s'
    from generate_series(1, greatest(%(events)s / 10, 2000)) n
    """,
    "drop table scope_plan, event_plan",
)

_OTHER_TENANTS = """
with made as (
    insert into tenants (tenant_id)
    select 'tenant-' || n from generate_series(1, %(tenants)s) n returning tenant_id),
switched as (
    insert into space_switches (tenant_id, begun_at, from_space, to_space, ended_at, switched,
        removed_at)
    select tenant_id, now() - interval '31 days', 'before/384', %(space)s,
        now() - interval '30 days', true, now() - interval '29 days'
    from (select tenant_id from made union all values ('acme'), ('globex')) t)
insert into quotas (tenant_id, quota, level, measured, measured_at)
select tenant_id, quota, 9, 9, now()
from (select tenant_id from made union all values ('acme'), ('globex')) t,
    unnest(array['requests', 'appends', 'stored_bytes']) quota
"""

_FIND_NAMED = """
select s.scope_id, s.participants, e.event_id, e.cid, b.blob_cid, 'cid-shared', 'cid-upload-0',
    c.scope_id
from (select scope_id, participants from scopes
      where tenant_id = %(tenant)s and participants @> array['user:wide', 'user:narrow']
      order by last_seq desc limit 1) s
cross join lateral (
    select event_id, cid from events
    where tenant_id = %(tenant)s and scope_id = s.scope_id order by seq limit 1) e
cross join (
    select blob_cid from events
    where tenant_id = %(tenant)s and blob_cid like 'blob-%%' and participants @> array['user:wide']
    order by event_id limit 1) b
cross join (
    select scope_id from chains
    where tenant_id = %(tenant)s and participants @> array['user:wide'] and status = 'active'
    order by chain_id limit 1) c
"""
