"""The limit: the same retrieval by one plain table and one statement, with no service around it.

No tenants, no row-level security, no log. Its constants are its own, so that a change to the
product does not move what the product is measured against.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from strandline.embeddings.embedder import Embedder
from strandline.local.postgres import EmbeddedPostgres
from tests.bench.locomo import DEPTH, Conversation, Turn, TurnId

NAME = "bare_postgres"

TABLE = """
create table turns (
    conversation text, position int, key text, session text, speaker text, said_at timestamptz,
    text text, metadata jsonb default '{}', recorded_at timestamptz default now(),
    words tsvector, embedding vector,
    primary key (conversation, position), unique (conversation, key));
create index on turns using gin (words);
create table conversations (conversation text primary key, length int not null default 0)
"""

STORE = """
insert into turns
    (conversation, position, key, session, speaker, said_at, text, words, embedding)
select %(conversation)s, %(position)s, %(key)s, %(session)s, %(speaker)s, %(said_at)s, %(text)s,
    setweight(to_tsvector('english', %(dated)s), 'A')
        || setweight(to_tsvector('english', %(previous)s), 'B'),
    %(embedding)s::vector
on conflict do nothing
"""

# The same work as an append: the turn's place is the conversation's next, taken under the lock of
# its row, and the turn before it is looked up, not told.
STORE_NEXT = """
with taken as (
    update conversations set length = length + 1 where conversation = %(conversation)s
    returning length - 1 as position)
insert into turns
    (conversation, position, key, session, speaker, said_at, text, words, embedding)
select %(conversation)s, taken.position, %(key)s, %(session)s, %(speaker)s, %(said_at)s, %(text)s,
    setweight(to_tsvector('english', %(dated)s), 'A')
        || setweight(to_tsvector('english', coalesce((
            select before.speaker || ': ' || before.text from turns before
            where before.conversation = %(conversation)s
                and before.position = taken.position - 1 and before.session = %(session)s),
            '')), 'B'),
    %(embedding)s::vector
from taken
on conflict do nothing
"""
TAKE = "update conversations set length = length + %(count)s where conversation = %(conversation)s"

# Full text: any word of the question, this turn and its date at 1, the turn before at 0.7, log of
# the length. Vectors: cosine. Fused by reciprocal rank with K = 10, weighted 1 : 0.5.
SEARCH = """
with asked as (
    select replace(plainto_tsquery('english', %(question)s)::text, '&', '|')::tsquery as words),
by_words as (
    select position, row_number() over (
        order by ts_rank('{0.1, 0.1, 0.7, 1.0}', t.words, asked.words, 1) desc, position) as rank
    from turns t, asked where conversation = %(conversation)s and t.words @@ asked.words
    order by rank limit 200),
by_vector as (
    select position,
        row_number() over (order by embedding <=> %(embedding)s::vector, position) as rank
    from turns where conversation = %(conversation)s
    order by rank limit 200)
select position, sum(score) as score from (
    select position, 1.0 / (10 + rank) as score from by_words
    union all
    select position, 0.5 / (10 + rank) from by_vector) fused
group by position order by score desc, position limit %(limit)s
"""


class BarePostgres:
    """One table of turns in one database."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], embedder: Embedder) -> None:
        self.connection = connection
        self._embedder = embedder

    def ranked(self, conversation: Conversation) -> Iterator[Sequence[TurnId]]:
        """Store a conversation with its vectors, then give the hits for each of its questions."""
        self._store(conversation)
        turn_ids = [turn.turn_id for turn in conversation.turns]
        for question in conversation.questions:
            params: dict[str, object] = {
                "conversation": conversation.name,
                "question": question.text,
                "embedding": self._vectors([question.text])[0],
                "limit": DEPTH,
            }
            yield [turn_ids[row[0]] for row in self.connection.execute(SEARCH, params).fetchall()]

    def _store(self, conversation: Conversation) -> None:
        rows = rows_of(conversation.name, conversation.turns)
        vectors = self._vectors([str(row["dated"]) for row in rows])
        pairs = zip(rows, vectors, strict=True)
        embeddings = [{**row, "embedding": vector} for row, vector in pairs]
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany(STORE, embeddings)

    def _vectors(self, texts: Sequence[str]) -> list[str]:
        """As Postgres reads them."""
        return [str(vector) for vector in self._embedder.embed(texts, timeout=60.0)]


def rows_of(conversation: str, turns: Sequence[Turn]) -> list[dict[str, object]]:
    """Turns as STORE takes them, without vectors; each with the turn before it in its session."""
    texts = [f"{turn.speaker}: {turn.text}" for turn in turns]
    return [
        {
            "conversation": conversation,
            "position": n,
            "key": f"{n} {turn.key}",
            "session": turn.session,
            "speaker": turn.speaker,
            "said_at": turn.said_at,
            "text": turn.text,
            "dated": f"[{turn.spoken}] {texts[n]}",
            "previous": texts[n - 1] if n and turns[n - 1].session == turn.session else "",
            "embedding": None,
        }
        for n, turn in enumerate(turns)
    ]


@contextmanager
def open_baseline(
    server: EmbeddedPostgres, embedder: Embedder, directory: Path, name: str = NAME
) -> Generator[BarePostgres]:
    """The table in a database of its own."""
    del directory
    server.clone_database("template1", name)
    with psycopg.connect(server.dsn(name), autocommit=True) as connection:
        connection.execute("create extension vector")
        connection.execute(TABLE)
        yield BarePostgres(connection, embedder)
