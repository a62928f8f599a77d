"""SQL for other spellings of a question's words: which of them stand in view."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb

_MAX_PIECES = 2_000
"""The maximum number of indexed pieces that are read for spellings, the newest: a spelling that so
many hold is found among them."""
_MAX_TEXTS = 500
"""The maximum number of texts that are read for words of the same beginning, the newest."""
_MAX_TEXT_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class VisibleSpelling:
    """Another spelling of a question's word that stands in view."""

    typed: str
    """The word as it stands in the question, in lower case."""
    stands_for: str
    """The same in the index's form."""
    spelling: str
    """The spelling, in lower case."""
    word: str
    """The same in the index's form."""
    pieces: int
    """The number of pieces that hold it, among those read."""


def find_visible_spellings(
    access: TenantDb,
    spellings_by_typed: Mapping[str, Iterable[str]],
    absent: Sequence[str] | None,
    scopes: Sequence[UUID] | None,
) -> Sequence[VisibleSpelling]:
    """Which of these spellings stand in view, for words of a question that do not. `absent` are the
    words, in the index's form, that do not; None: all. `scopes` limits the view."""
    pairs = [
        (word, spelling) for word, spellings in spellings_by_typed.items() for spelling in spellings
    ]
    return access.fetch(
        VisibleSpelling,
        """
        with typed as materialized (
            select t.typed, (ts_lexize('pg_catalog.english_stem', t.typed))[1] as stands_for
            from unnest(%(typed)s::text[]) t (typed)),
        made as materialized (
            select t.typed, t.stands_for, s.spelling,
                (ts_lexize('pg_catalog.english_stem', s.spelling))[1] as word
            from unnest(%(of_typed)s::text[], %(spellings)s::text[]) s (typed, spelling)
            join typed t using (typed)
            where t.stands_for is not null
                and (%(absent)s::text[] is null or t.stands_for = any (%(absent)s::text[]))),
        pieces as materialized (
            select p.words
            from newest_pieces_with_words(
                (select string_agg(distinct word_query(word, ':ACD')::text, ' | ')::tsquery
                    from made where word is not null),
                %(scopes)s::uuid[], %(max_pieces)s) p),
        counts as materialized (
            select held.word, count(*) as pieces
            from pieces p
            -- not those of the event before it
            cross join lateral unnest(tsvector_to_array(ts_filter(p.words, '{a,c,d}'))) held (word)
            where held.word in (select word from made where word is not null)
            group by held.word)
        select m.typed, m.stands_for, m.spelling, m.word, c.pieces
        from made m
        join counts c using (word)
        where m.word <> m.stands_for
        """,
        {
            "typed": list(spellings_by_typed),
            "of_typed": [word for word, _ in pairs],
            "spellings": [spelling for _, spelling in pairs],
            "absent": None if absent is None else list(absent),
            "scopes": None if scopes is None else list(scopes),
            "max_pieces": _MAX_PIECES,
        },
    )


def find_visible_words_with_beginning(
    access: TenantDb,
    beginning_by_typed: Mapping[str, str],
    absent: Sequence[str] | None,
    scopes: Sequence[UUID] | None,
) -> Sequence[VisibleSpelling]:
    """The words of visible texts that begin like words of a question that stand nowhere in view.
    The beginnings are letters. `absent` and `scopes` are as in `find_visible_spellings`."""
    return access.fetch(
        VisibleSpelling,
        """
        with typed as materialized (
            select t.typed, t.beginning,
                (ts_lexize('pg_catalog.english_stem', t.typed))[1] as stands_for
            from unnest(%(typed)s::text[], %(beginnings)s::text[]) t (typed, beginning)),
        found as materialized (
            select t.typed, t.stands_for, held.word[1] as spelling, count(*) as pieces
            from typed t
            cross join lateral newest_pieces_with_words(
                word_query(t.beginning, ':*ACD'), %(scopes)s::uuid[],
                %(max_texts)s) p
            cross join lateral (
                select fold_text(left(e.content, %(max_chars)s)) as text from events e
                where e.tenant_id = current_tenant() and e.event_id = p.event_id
                    and e.erased_at is null offset 0) e
            cross join lateral regexp_matches(
                e.text, '\\m' || t.beginning || '[[:alpha:]]+' collate "pg_c_utf8", 'g') held (word)
            where t.stands_for is not null
                and (%(absent)s::text[] is null or t.stands_for = any (%(absent)s::text[]))
            group by t.typed, t.stands_for, held.word[1])
        select f.typed, f.stands_for, f.spelling, w.word, f.pieces
        from found f
        cross join lateral (
            select (ts_lexize('pg_catalog.english_stem', f.spelling))[1] as word) w
        where w.word is not null and w.word <> f.stands_for
        """,
        {
            "typed": list(beginning_by_typed),
            "beginnings": list(beginning_by_typed.values()),
            "absent": None if absent is None else list(absent),
            "scopes": None if scopes is None else list(scopes),
            "max_texts": _MAX_TEXTS,
            "max_chars": _MAX_TEXT_CHARS,
        },
    )
