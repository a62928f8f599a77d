"""Lists take the way that is quick for the view; whichever it is, they say what a plain statement
over the tables says."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from strandline.cursors import Position
from strandline.db.database import Caller, Database
from strandline.log import store as log_store
from strandline.log import store_scopes
from tests.support import ScratchDatabase

PEOPLE = [*(f"user:{name}" for name in "abcdef"), "agent:x", "agent:y"]
OLD = "user:old"
"""In the scopes that fell silent first."""
VIEWERS: list[tuple[str, ...]] = [
    (),
    *((who,) for who in PEOPLE),
    *[(OLD,)] * 4,
    ("agent:x", OLD),
    ("agent:x", "user:a"),
    ("user:a", "user:b"),
    ("user:nobody",),
]
NARROWINGS: list[dict[str, object]] = [
    {},
    {},
    {"role": "agent"},
    {"speaker": "user:a"},
    {"session_id": "s1", "role": "user"},
    {"session_id": "s1"},
    {"session_id": "s7"},
    {"session_id": "s of nobody"},
    {"metadata": {"pier": 3}},
    {"since": "2026-05-01T00:02:00Z", "until": "2026-05-01T00:04:00Z"},
]
CONTAINED = ["IDE Sto", "whale", "oy WHALE t", "REEF", "ef", "of nobody", "t"]
TEXTS = [
    None,
    None,
    None,
    "tide",
    "tide storm",
    "tide or whale",
    "whale",
    "tide -storm",
    "-tide",
    '"tide storm"',
    '"storm tide" whale',
    "mast or -storm",
    "reef",
    "reef -tide",
    "the",
    "it's 'tide\\' | & !",
]


@dataclass(frozen=True)
class Ask:
    """A list as somebody asks for it."""

    viewer: tuple[str, ...]
    narrowing: dict[str, object]
    text: str | None
    after: Position | None
    limit: int
    few: int
    scope_id: UUID | None


# 900 events in 90 scopes; each scope speaks in one part of the time, so that views are silent for
# long; clocks that stand still, marked events, and texts in several pieces.
_FILL = """
insert into tenants values ('acme'), ('globex');
create temp table plan as
select n, md5('scope' || n)::uuid as scope_id, array(
    select who from unnest(%(people)s::text[]) who where random() < 0.25 or who = 'user:p' || n
    union select 'user:p' || n union select 'user:old' where n <= 40 order by 1) as participants
from generate_series(1, 90) n;
create temp table said as
select i, n, row_number() over (partition by n order by i) as seq,
    case when i %% 5 = 0 then 'globex' else 'acme' end as tenant_id,
    '2026-05-01Z'::timestamptz + i / 6 * interval '2 s' as at,
    array(select (array['tide', 'storm', 'whale', 'mast', 'the', 'buoy', 'reef'])
              [1 + floor(random() * 6.2)]
          from generate_series(1, 3 + i * 0)) as words
from (
    select i, (i / 100) * 10 + 1 + floor(10 * random() ^ 2)::int as n
    from generate_series(1, 899) i) i;
insert into scopes (tenant_id, scope_id, participants, last_seq, last_recorded_at, created_at)
    select tenant, scope_id, participants, 99, now(),
        '2026-05-01Z'::timestamptz + n / 4 * interval '1 s'
    from plan, unnest(array['acme', 'globex']) tenant;
insert into scope_members (tenant_id, participant, scope_id, participants)
    select tenant_id, who, scope_id, participants from scopes, unnest(participants) who;
"""
_EVENTS = """
insert into events (tenant_id, event_id, scope_id, seq, participants, session_id, channel, role,
    type, origin, speaker, writer, content, metadata, recorded_at, cid, erased_at)
select tenant_id, md5('event' || i)::uuid, scope_id, seq, participants,
    's' || case when i %% 3 = 0 then 1 else n %% 20 end, 'http',
    (array['user', 'agent'])[1 + i %% 2], 'message', 'user', 'user:' || chr(97 + i %% 6), '*',
    array_to_string(words, ' '), jsonb_build_object('pier', i %% 5), at, 'cid' || i,
    case when i %% 40 = 0 then now() end
from said join plan using (n) where i %% 2 = %(half)s
"""
_SESSIONS = """
insert into sessions (tenant_id, session_id, scope_id, participants, writer)
select distinct tenant_id, session_id, scope_id, participants, '*' from events
"""
_WORDS = """
insert into event_search (tenant_id, scope_id, event_id, piece, start_char, end_char, participants,
    words)
select e.tenant_id, e.scope_id, e.event_id, piece - 1, 0, 0, e.participants,
    setweight(to_tsvector('english', text), 'A') || setweight('mast:1', 'B')
        || setweight('tide:1', 'D')
from events e, unnest(case when mod(e.seq, 4) = 0 then string_to_array(e.content, ' ')
    else array[e.content] end) with ordinality pieces (text, piece)
"""
# How far each scope's texts are indexed differs: not at all, in part, whole.
_TEXTS = """
update scopes set indexed_seq = (array[0, 4, 99])[1 + abs(hashtext(scope_id::text)) % 3];
insert into event_texts (tenant_id, scope_id, event_id, participants, text)
select e.tenant_id, e.scope_id, e.event_id, e.participants, fold_text(e.content)
from events e join scopes s using (tenant_id, scope_id)
where e.seq <= s.indexed_seq and e.erased_at is null
"""

REFERENCE = """
select e.event_id from events e
where e.tenant_id = 'acme' and e.erased_at is null and e.participants @> %(viewer)s::text[]
    and (%(scope_id)s::uuid is null or e.scope_id = %(scope_id)s)
    and (%(role)s::text is null or e.role = %(role)s)
    and (%(speaker)s::text is null or e.speaker = %(speaker)s)
    and (%(session_id)s::text is null or e.session_id = %(session_id)s)
    and (%(metadata)s::jsonb is null or e.metadata @> %(metadata)s)
    and (%(since)s::timestamptz is null or e.recorded_at >= %(since)s)
    and (%(until)s::timestamptz is null or e.recorded_at < %(until)s)
    and (%(mark)s::text is null or pg_visible_in_snapshot(e.xid, %(mark)s::pg_snapshot))
    and (%(at)s::timestamptz is null
        or (e.recorded_at, e.scope_id, e.seq) < (%(at)s, %(after)s::uuid, %(seq)s::bigint))
    and (%(contains)s::text is null or e.content ilike '%%' || %(contains)s || '%%')
    and (%(text)s::text is null or (
        select case when count(*) = 1
            then bool_and(ts_filter(w.words, '{a}') @@ websearch_to_tsquery('english', %(text)s))
            else string_agg(strip(ts_filter(w.words, '{a}'))::text, ' ')::tsvector
                @@ websearch_to_tsquery('english', %(text)s) end
        from event_search w where w.tenant_id = e.tenant_id and w.event_id = e.event_id))
order by e.recorded_at desc, e.scope_id desc, e.seq desc
"""


@pytest.fixture
def marks(scratch_db: ScratchDatabase) -> list[str]:
    """Fill the database; gives snapshots of its beginning, middle and end."""
    people = {"people": PEOPLE}
    results: list[str] = []
    with psycopg.connect(scratch_db.admin_url, autocommit=True) as administrator:
        administrator.execute("set session_replication_role = replica")
        administrator.execute("select setseed(0.3)")
        for statement in _FILL.split(";\n"):
            administrator.execute(statement.encode(), people if "people" in statement else {})
        for half in (0, 1):
            results += _snapshot(administrator)
            administrator.execute(_EVENTS, {"half": half})
        administrator.execute(_SESSIONS)
        administrator.execute(_WORDS)
        administrator.execute(_TEXTS)
        return results + _snapshot(administrator)


def searches(base: ScratchDatabase, marks: list[str], cases: int) -> list[Ask]:
    """Such lists of what a text matches, of views and pages so small that one scope's newest events
    are not enough."""
    chance = random.Random(6)
    scopes = base.rows("select scope_id, participants from events where tenant_id = 'acme'")
    results: list[Ask] = []
    for n, ask in enumerate(asks(base, marks, cases)):
        scope_id, participants = chance.choice(scopes)
        results.append(
            replace(
                ask,
                text=ask.text or chance.choice(("reef", "tide or reef")) if n % 2 else None,
                narrowing=ask.narrowing | ({} if n % 2 else {"contains": chance.choice(CONTAINED)}),
                limit=chance.choice((1, 1, 2)),
                viewer=(chance.choice(participants),),
                few=chance.choice((1, 10, 200)),
                scope_id=chance.choice((None, scope_id)),
            )
        )
    return results


def _snapshot(connection: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in connection.execute("select pg_current_snapshot()::text").fetchall()]


def asks(base: ScratchDatabase, marks: list[str], cases: int) -> list[Ask]:
    """Lists drawn at random: views small and wide, a cursor at some event, of some snapshot."""
    chance = random.Random(5)
    places: list[tuple[datetime, UUID, int]] = base.rows(
        "select recorded_at, scope_id, seq from events where tenant_id = 'acme'"
    )  # type: ignore[assignment]
    return [
        Ask(
            chance.choice(VIEWERS),
            chance.choice(NARROWINGS),
            chance.choice(TEXTS),
            chance.choice([None, Position(chance.choice(marks), *chance.choice(places))]),
            chance.choice((1, 1, 2, 3, 10, 500)),
            chance.choice((1, 1, 3, 200)),
            chance.choice((None, None, None, None, chance.choice(places)[1])),
        )
        for _ in range(cases)
    ]


def differing(base: ScratchDatabase, draws: list[Ask]) -> Iterator[str]:
    """Lists that are not what the plain statement says, or that miscount what follows."""
    with closing(Database(base.url)) as database, psycopg.connect(base.admin_url) as administrator:
        for ask in draws:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(log_store, "MAX_LISTED_SCOPES", ask.few)
                rows = log_store.list_newest(
                    database.connect_as(Caller("acme", ask.viewer)),
                    filters=ask.narrowing,
                    scope_id=ask.scope_id,
                    text=ask.text,
                    after=ask.after,
                    limit=ask.limit,
                    page_bytes=10**9,
                ).rows
            expected = [row[0] for row in administrator.execute(REFERENCE, _params(ask)).fetchall()]
            available = min(len(expected), ask.limit + 1)
            if [row.event_id for row in rows] != expected[: ask.limit] or {
                row.available for row in rows
            } - {available}:
                yield f"{ask}: {len(rows)} of {len(expected)}"


def _params(ask: Ask) -> dict[str, object]:
    names = ("role", "speaker", "session_id", "since", "until", "contains")
    pier = ask.narrowing.get("metadata")
    return {name: ask.narrowing.get(name) for name in names} | {
        "metadata": pier and '{"pier": 3}',
        "viewer": list(ask.viewer),
        "scope_id": ask.scope_id,
        "text": ask.text,
        "mark": ask.after and ask.after.pg_snapshot,
        "at": ask.after and ask.after.at,
        "after": ask.after and ask.after.row_id,
        "seq": ask.after and ask.after.seq,
    }


def test_list_results_match_plain_query(
    scratch_db: ScratchDatabase, marks: list[str], proof_size: Callable[[int], int]
) -> None:
    draws = [ask for draw in (asks, searches) for ask in draw(scratch_db, marks, proof_size(4000))]
    assert list(differing(scratch_db, draws)) == []


_FAULTS = {
    "the last event again": ("is_listed", "(e).seq) < ROW(", "(e).seq) <= ROW("),
    "a snapshot forgotten": ("is_listed", "p_snapshot IS NULL", "true"),
    "a payload's words in one piece only": ("relax_tsquery", "' | '", "' & '"),
    "negations needed": ("required_tsquery", "<> 'T'", "<> ''"),
    "a page of the newest scopes": (
        "newest_in_many_scopes",
        "e.seq desc limit 1)",
        "e.seq limit 1)",
    ),
    "a session in few of its scopes": (
        "scopes_with_session",
        "LIMIT scopes_with_session.p_limit",
        "LIMIT 1",
    ),
    "a session's other scopes": ("scopes_with_session", "< p_limit", "= 0"),
    "what lies further back forgotten": (
        "newest_in_many_scopes",
        "'-infinity' then",
        "v_since then",
    ),
}
_FAULTS_OF_SEARCHES = {
    "what no worker has indexed yet": (
        "events_containing",
        "e.seq > s.indexed_seq",
        "e.seq > s.last_seq",
    ),
    "capitals that matter": ("fold_text", "lower(", "("),
    "a text's first letters only": ("indexed_events_containing", ") > 0", ") = 1"),
    "more than is read of some scopes": (
        "newest_matches_in_few_scopes",
        "order by recorded_at desc",
        "order by recorded_at",
    ),
    "the oldest of what the index names too much of": (
        "newest_matches_in_few_scopes",
        "order by e.recorded_at desc",
        "order by e.recorded_at",
    ),
    "the newest of few scopes only": (
        "newest_matches_in_few_scopes",
        "or v_at is null",
        "or v_at is not null",
    ),
    "a text in few scopes, from any": (
        "text_candidates",
        "(v_required, p_scopes",
        "(v_required, null",
    ),
}


def find_unnoticed(
    base: ScratchDatabase, draws: list[Ask], faults: dict[str, tuple[str, str, str]]
) -> Iterator[str]:
    """Faults with each of which, planted alone, every list is still what it should be."""
    with psycopg.connect(base.admin_url, autocommit=True) as administrator:
        for fault, (name, right, wrong) in faults.items():
            (definition,) = base.rows(f"select pg_get_functiondef('{name}'::regproc)")[0]
            assert definition.count(right) == 1, definition
            administrator.execute(definition.replace(right, wrong).encode())
            if not any(differing(base, draws)):
                yield fault
            administrator.execute(definition.encode())


@pytest.mark.proof
def test_list_test_detects_wrong_result(scratch_db: ScratchDatabase, marks: list[str]) -> None:
    assert list(find_unnoticed(scratch_db, asks(scratch_db, marks, 400), _FAULTS)) == []
    draw = searches(scratch_db, marks, 1200)
    assert list(find_unnoticed(scratch_db, draw, _FAULTS_OF_SEARCHES)) == []


def test_list_of_scopes_matches_plain_query(scratch_db: ScratchDatabase, marks: list[str]) -> None:
    del marks
    reference = (
        "select scope_id from scopes where tenant_id = 'acme' and participants @> %s::text[]"
        " order by created_at desc, scope_id desc"
    )
    for viewer in VIEWERS:
        expected = [row[0] for row in scratch_db.rows(reference, list(viewer))]
        with closing(Database(scratch_db.url)) as database:
            access, ids = database.connect_as(Caller("acme", viewer)), list[UUID]()
            after: Position | None = None
            while rows := store_scopes.list_newest(access, after, 7):
                ids += [row.scope_id for row in rows]
                after = Position(rows[-1].pg_snapshot, rows[-1].created_at, rows[-1].scope_id)
        assert ids == expected, viewer
