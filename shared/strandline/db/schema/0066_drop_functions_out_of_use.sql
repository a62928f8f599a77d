-- Functions of which no code has been left for several releases: two with another signature than the one in
-- use, and those that ranked and filtered events before recall and lists got others. A database that begins
-- at the baseline has none of them.

set local role strandline_planner;
-- contract: since 0.1.0
drop function if exists tenants_to_archive(timestamptz, interval, interval);
-- contract: since 0.1.0
drop function if exists next_archive(interval, interval, interval, timestamptz);
reset role;
set local role strandline_search;
-- contract: since 0.1.0
drop function if exists search_events(tsquery, uuid[], jsonb, int);
reset role;
-- contract: since 0.1.0
drop function if exists to_or_tsquery(text);
-- contract: since 0.1.0
drop function if exists matches_web_search(events, text);
-- contract: since 0.1.0
drop function if exists event_matches_web_search(uuid, uuid, text);
