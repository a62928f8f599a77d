-- What the last failure of a model was, until it gives a usable answer: its kind (as in the outcome
-- of a model call), a sentence of ours about it, and when it happened. The sentence never holds text
-- of the provider.
alter table model_states
    add column failure text,
    add column failure_text text check (length(failure_text) <= 300),
    add column failed_at timestamptz;
grant update (failure, failure_text, failed_at) on model_states to strandline_app;

-- An outcome of its own for a provider that refuses the settings. Every row fulfils the former check,
-- so none is read.
alter table model_calls drop constraint model_calls_outcome_check,
    add constraint model_calls_outcome_check check (outcome in
        ('ok', 'invalid_output', 'format_refused', 'refused', 'late', 'unavailable',
        'misconfigured')) not valid;
