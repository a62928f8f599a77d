"""Plain ways to rank the same events: BM25, cosine, their ranks fused, and bare SQL."""

import math
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

import psycopg

from strandline.log import indexed_text
from strandline.participants import display_name
from tests.bench import recall_corpora
from tests.bench.recall_corpora import Corpus
from tests.bench.recall_service import Asking, RecallService

LIMIT = 20
_K1, _B = 1.5, 0.75
"""Of BM25."""
_AGENT = 0.4
"""An agent's text counts so much by author: about here BEAM's ranking is at its best."""

# What a developer writes who has Postgres and pgvector: texts as they are, one statement for words
# (all of them, as websearch_to_tsquery has it), one for vectors, and their ranks fused with 60.
_TABLE = """
create temporary table memories (
    corpus text, key text, participants text[], content text,
    words tsvector generated always as (to_tsvector('english', content)) stored, embedding vector)
"""
_STORE = """
insert into memories (corpus, key, participants, content, embedding)
values (%s, %s, %s, %s, %s::vector)
"""
_BY_WORDS = """
select key from memories, websearch_to_tsquery('english', %(text)s) as query
where corpus = %(corpus)s and participants @> %(participants)s and words @@ query
order by ts_rank_cd(words, query) desc limit %(limit)s
"""
_BY_VECTOR = """
select key from memories where corpus = %(corpus)s and participants @> %(participants)s
order by embedding <=> %(vector)s::vector limit %(limit)s
"""
_FUSED = 60


class BareSql:
    """One table of all corpora, without a service."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection
        connection.execute(_TABLE)

    def store(self, corpus: Corpus, vectors: Sequence[Sequence[float]]) -> None:
        """Insert a corpus with the vectors of its plain texts."""
        rows = [
            (
                corpus.name,
                event["source_event_key"],
                list(event["participants"]),
                event["content"],
                str([*vector]),
            )
            for event, vector in zip(corpus.events, vectors, strict=True)
        ]
        with self._connection.cursor() as cursor:
            cursor.executemany(_STORE, rows)

    def rankings(self, asking: Asking, vector: Sequence[float]) -> dict[str, list[str]]:
        """Keys, best first: by both statements, and by that of vectors alone."""
        fields: dict[str, object] = {
            "corpus": asking.tenant.name,
            "participants": list(asking.participants),
            "text": asking.question.text,
            "vector": str([*vector]),
            "limit": LIMIT,
        }
        by_words, by_vector = (
            [str(row[0]) for row in self._connection.execute(statement, fields).fetchall()]
            for statement in (_BY_WORDS, _BY_VECTOR)
        )
        fused = fuse([(1.0, by_words), (1.0, by_vector)], _FUSED)
        return {"bare SQL, words and vectors": fused, "bare SQL, vectors": by_vector}


@contextmanager
def open_bare_sql(service: RecallService) -> Generator[BareSql]:
    """The table, in a session of its own, and so gone afterwards."""
    with psycopg.connect(service.system.base.admin_url, autocommit=True) as connection:
        yield BareSql(connection)


def fuse[Key](orders: Sequence[tuple[float, Sequence[Key]]], constant: float) -> list[Key]:
    """Reciprocal rank fusion of weighted orders, best first; ties as they came first."""
    scores: dict[Key, float] = defaultdict(float)
    for weight, order in orders:
        for place, key in enumerate(order, 1):
            scores[key] += weight / (constant + place)
    return sorted(scores, key=lambda key: -scores[key])


class Plain:
    """Rankings of the events in view by what is easily had.

    BM25 as Robertson and Zaragoza (2009) have it, over English stems, each event with its date and
    speaker; so is the cosine. By author an agent's text counts less, as in recall. Bare SQL has the
    texts as they are.
    """

    def __init__(self, corpus: Corpus, service: RecallService, bare: BareSql) -> None:
        self._events = corpus.events
        self._author = [_AGENT if event["role"] == "agent" else 1.0 for event in corpus.events]
        dated = [date_text(event) for event in corpus.events]
        self._vectors = service.embedder.embed(dated, timeout=600.0)
        texts = [event["content"] for event in corpus.events]
        bare.store(corpus, service.embedder.embed(texts, timeout=600.0))
        self._bare = bare
        self._service = service
        self._stems = stem_texts(service, dated)

    def rankings(self, asking: Asking) -> dict[str, list[str]]:
        """Keys of the events in view, best first, by each way to rank."""
        viewer = set(asking.participants)
        view = [n for n, e in enumerate(self._events) if viewer <= set(e["participants"])]
        (stems,) = stem_texts(self._service, [asking.question.text])
        (vector,) = self._service.embedder.embed(
            [asking.question.text], timeout=60.0, purpose="question"
        )
        words = score_bm25([self._stems[n] for n in view], stems)
        scores = dict(zip(view, words, strict=True))
        cosines = {n: math.sumprod(vector, self._vectors[n]) for n in view}
        by_words = sorted((n for n in view if scores[n] > 0), key=lambda n: -scores[n])
        by_author = sorted(by_words, key=lambda n: -scores[n] * self._author[n])
        by_cosine = sorted(view, key=lambda n: -cosines[n])
        by_rank = fuse([(1.0, by_words[:200]), (0.5, by_cosine[:200])], 10)
        orders = {
            "BM25": by_words,
            "BM25, by author": by_author,
            "cosine": by_cosine,
            "ranks fused": by_rank,
        }
        return {
            **{
                name: [self._events[n]["source_event_key"] for n in order[:LIMIT]]
                for name, order in orders.items()
            },
            **self._bare.rankings(asking, vector),
        }


def score_bm25(texts: Sequence[Mapping[str, int]], query: Mapping[str, int]) -> list[float]:
    """Of each text, whose stems are counted."""
    lengths = [sum(text.values()) for text in texts]
    mean = fmean(lengths) or 1.0
    weights: dict[str, float] = {}
    for stem in query:
        count = sum(stem in text for text in texts)
        weights[stem] = math.log(1 + (len(texts) - count + 0.5) / (count + 0.5))
    scores: list[float] = []
    for text, length in zip(texts, lengths, strict=True):
        norm = _K1 * (1 - _B + _B * length / mean)
        contents = {stem: text.get(stem, 0) for stem in query}
        scores.append(
            sum(
                weights[stem] * count * (_K1 + 1) / (count + norm)
                for stem, count in contents.items()
            )
        )
    return scores


def date_text(event: Mapping[str, Any]) -> str:
    """An event's text with its date and speaker, as the service embeds it."""
    said_at = recall_corpora.moment(event["occurred_at"])
    speaker = event.get("speaker")
    line = f"{display_name(speaker)}: {event['content']}" if speaker else event["content"]
    return f"[{indexed_text.format_utc_date_in_words(said_at)}] {line}"


def stem_texts(service: RecallService, texts: Sequence[str]) -> list[dict[str, int]]:
    """English stems with their counts, by Postgres."""
    with psycopg.connect(service.system.base.admin_url) as connection:
        rows = connection.execute(
            "select (select jsonb_object_agg(lexeme, cardinality(positions))"
            " from unnest(to_tsvector('english', text)))"
            " from unnest(%s::text[]) with ordinality as t (text, n) order by n",
            (list(texts),),
        ).fetchall()
    return [row[0] or {} for row in rows]
