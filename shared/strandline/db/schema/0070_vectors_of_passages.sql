-- A long text has a vector for each of its passages, in order (shared/strandline/log/passage_spans.py), beside the
-- one of its beginning; null for a short text, and for what was embedded before.
alter table event_vectors add column passages halfvec[];
grant update (passages) on event_vectors to strandline_app;
