-- Half the time: the characters of a text and of its two rests side by side, without a window, and with what is
-- there twice, which the index leaves out itself.
create or replace function trigrams_of(p_text text) returns text[] language sql immutable parallel safe
    return array(
        select t.first || t.second || t.third
        from rows from (
            string_to_table(p_text, null), string_to_table(substr(p_text, 2), null),
            string_to_table(substr(p_text, 3), null)) as t (first, second, third)
        where t.third is not null);
