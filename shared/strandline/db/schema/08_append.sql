-- What the functions of an append pass to each other (see log/functions.sql), and the rights of the role that
-- owns its fast path.

create type append_item as (
    n int,  -- the item's place in the request, from 0
    event_id uuid,
    scope_id uuid,
    participants text[],
    session_id text,
    channel text,
    role text,
    type text,
    origin text,
    speaker text,
    content text,
    parts jsonb,
    stop_reason text,
    blob_cid text,
    blob_size bigint,
    mime_type text,
    file_name text,
    blob_stored boolean,  -- this request put the blob into the store itself
    metadata jsonb,
    occurred_at timestamptz,
    cid text,
    key_channel text,
    source_event_key text,
    fingerprint text,
    edges jsonb,  -- [{"event_id", "cid", "weight"}]; no cid where the target was not visible
    label text,  -- the speaker's name in the index
    pieces jsonb,  -- [{"start", "end", "text"}]: the text in pieces, in order
    bytes bigint,  -- what the item adds to its scope
    seq bigint,  -- this and the next are assigned by the log, whatever a request says
    recorded_at timestamptz,
    -- The HMAC of the item's key, made by the service as erase_events makes it; null: the item has no key.
    key_hash text
);

-- What became of an item. outcome is created, replayed, conflict or a refusal's code; stored is the
-- earlier event of a conflict, if the caller may see it; work_enqueued says that the scope had no work
-- waiting before.
create type append_outcome as (
    n int,
    outcome text,
    event_id uuid,
    scope_id uuid,
    seq bigint,
    cid text,
    recorded_at timestamptz,
    blob_size bigint,
    stored jsonb,
    work_enqueued boolean
);

-- A piece of an event on its way into the text index.
create type append_piece as (
    event_id uuid,
    scope_id uuid,
    participants text[],
    piece int,
    start_char int,
    end_char int,
    cited_id uuid,
    words tsvector
);
-- append_fast_path is owned by strandline_append, a role that nobody can log in as. Its row-level policies are
-- the application's, so it reads and writes what its caller could. But the guards of erasure
-- (refuse_erased_event and refuse_erased_citation) skip its rows, because it does their work itself: its event
-- is as new as its transaction, and it locks the one event that it cites, whose erased_at it reads under that
-- lock. The application's own inserts meet the guards.
grant select on scopes, sessions, events, event_search, scope_work to strandline_append;
grant insert on event_keys, event_search, scope_members to strandline_append;
grant insert (tenant_id, scope_id, participants, due_at) on scope_work to strandline_append;
grant insert (tenant_id, scope_id, participants) on scopes to strandline_append;
grant insert (tenant_id, event_id, scope_id, seq, participants, session_id, channel, role, type, origin,
    speaker, writer, content, parts, stop_reason, mime_type, file_name, metadata, occurred_at,
    recorded_at, cid) on events to strandline_append;
grant update (last_seq, last_recorded_at, stored_bytes) on scopes to strandline_append;
grant update (erased_at) on events to strandline_append;  -- the right to lock
