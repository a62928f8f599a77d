-- A vector of the two models that ship takes 1,794 bytes, and its code 337. Beyond 2,032 bytes Postgres
-- would move a row's vector out of it, and each look at a vector would cost two more reads.
alter table event_vectors set (toast_tuple_target = 4080);
alter table embedding_cache set (toast_tuple_target = 4080);
