-- Full text: the index of events' words. Under row-level security Postgres cannot use a GIN index (its
-- operators are not leakproof), so search is behind functions with their own test of tenant and visibility.

create table event_search (
    tenant_id text not null,
    scope_id uuid not null,
    event_id uuid not null,
    piece int not null,  -- large content is indexed in pieces
    start_char int not null,
    end_char int not null,
    participants text[] not null,
    cited_id uuid,  -- the event before it in its lane, whose words stand here at weight B
    words tsvector not null,  -- A: the text, B: the event before it, C: the date, D: the speaker
    primary key (tenant_id, scope_id, event_id, piece),
    foreign key (tenant_id, event_id) references events,
    foreign key (tenant_id, cited_id) references events
);
create index event_search_words on event_search using gin (tenant_id, words);

create policy in_view on event_search to strandline_app, strandline_owner, strandline_append
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));

-- As on events, append_fast_path does this test by itself.
create policy matches_scope on event_search as restrictive for insert to strandline_app, strandline_owner
    with check (is_scope_of(scope_id, tenant_id, participants));
create policy search_reads on event_search for select to strandline_search using (true);
alter table event_search enable row level security, force row level security;
grant select, insert on event_search to strandline_app;
grant select on event_search to strandline_search;

-- texts --------------------------------------------------------------------------------------------

-- Substring search. A worker fills the index, as the trigrams of a text would cost an append a sixth. What it
-- has not reached yet (events past indexed_seq) is searched by scan, so that an append can be found at once.

-- In NFC, as questions are. Postgres reads every character for that; plain ASCII does not need it.
create function normalize_nfc(p_text text) returns text language sql immutable parallel safe
    return case when octet_length(p_text) = length(p_text) then p_text else normalize(p_text, NFC) end;

-- What two texts have in common that differ in case and composition only: letter by letter, and the
-- same on every platform, as the collation is Postgres's own.
create function fold_text(p_text text) returns text language sql immutable parallel safe
    return lower(normalize_nfc(p_text) collate "pg_c_utf8");

-- Every three characters that stand together, also spaces and punctuation: pg_trgm knows only those of
-- words, and would read the whole index for `C++` or `->`.
create function trigrams_of(p_text text) returns text[] language sql immutable parallel safe
    return array(
        select distinct t.first || t.second || t.third
        from (
            select c.char as first, lead(c.char) over by_place as second,
                lead(c.char, 2) over by_place as third
            from unnest(string_to_array(p_text, null)) with ordinality as c (char, place)
            window by_place as (order by c.place)) t
        where t.third is not null);

create table event_texts (
    tenant_id text not null,
    scope_id uuid not null,
    event_id uuid not null,
    participants text[] not null,
    text text collate "C" not null,  -- folded; "C", as the index must not depend on a platform's order
    primary key (tenant_id, scope_id, event_id),
    foreign key (tenant_id, event_id) references events
);
-- No pending list: workers can wait, and each search would read all of it.
create index event_texts_trigrams on event_texts using gin (tenant_id, trigrams_of(text))
    with (fastupdate = off);

create policy in_view on event_texts to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
create policy matches_scope on event_texts as restrictive for insert to public
    with check (is_scope_of(scope_id, tenant_id, participants));
create policy search_reads on event_texts for select to strandline_search using (true);
alter table event_texts enable row level security, force row level security;
grant select, insert on event_texts to strandline_app;
grant select on event_texts to strandline_search;
