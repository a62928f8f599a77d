-- An upload that no event cites is what somebody said too, though no event's: an erasure of all that was said
-- did not reach it, and it lay in the bucket until it expired.

grant create on schema public to strandline_eraser;

-- Forget the uploads of a writer, or of all writers (null); their objects are the job's to remove. For who
-- erases a tenant, or what somebody said: a bound user reaches that user's own alone. Returns how many.
create function forget_uploads(p_erasure_id uuid, p_writer text) returns bigint
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
declare
    v_count bigint;
begin
    with gone as (
        delete from uploads u
        where u.tenant_id = current_tenant() and (p_writer is null or u.writer = p_writer)
            and (current_viewer() = '{}'
                or (u.writer = current_writer() and u.writer = any (current_viewer())))
        returning u.upload_id)
    insert into erased_payloads (tenant_id, object, erasure_id)
    select current_tenant(), 'uploads/' || g.upload_id, p_erasure_id from gone g;
    get diagnostics v_count = row_count;
    return v_count;
end $$;
revoke execute on function forget_uploads from public;
grant execute on function forget_uploads to strandline_app;
alter function forget_uploads owner to strandline_eraser;
revoke create on schema public from strandline_eraser;
