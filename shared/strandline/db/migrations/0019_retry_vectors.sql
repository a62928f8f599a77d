-- A vector that was refused may be asked for again: the refusal gives way to what comes then.

grant update (embedding, refusal, embedded_at) on event_vectors to strandline_app;
create index event_vectors_refused on event_vectors (tenant_id, space, scope_id, event_id)
    where refusal is not null;
