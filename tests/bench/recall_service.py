"""The real service over every corpus, each in a tenant of its own, for measuring recall."""

import itertools
import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from strandline.db.database import Caller, Database
from strandline.embeddings.embedder import Embedder
from strandline.local.postgres import EmbeddedPostgres
from strandline.recall import question_mentions as recall_question
from strandline.recall import store
from strandline.recall.features import CandidateEvent, QuestionWord
from tests.bench import strandline_system
from tests.bench.recall_corpora import Corpus, Question
from tests.bench.strandline_system import BATCH, Strandline

LIMIT = 20
_AWAY = 2
"""Each question is also asked of so many other tenants, where nothing answers it."""


@dataclass(frozen=True)
class Asking:
    """A question with the tenant that it is asked in, and on whose behalf."""

    question: Question
    home: Corpus
    tenant: Corpus
    participants: Sequence[str]

    @property
    def evidence(self) -> frozenset[str]:
        """What answers it there."""
        return self.question.evidence if self.tenant is self.home else frozenset()


def list_askings(corpora: Sequence[Corpus], seed: int = 1) -> list[Asking]:
    """Every question at home, and those with an answer in two tenants elsewhere."""
    chance = random.Random(seed)
    askings: list[Asking] = []
    for home in corpora:
        for question in home.questions:
            askings.append(Asking(question, home, home, question.participants))
            if question.evidence:
                for other in chance.sample([c for c in corpora if c is not home], _AWAY):
                    viewer = chance.choice(other.questions).participants
                    askings.append(Asking(question, home, other, viewer))
    return askings


@dataclass
class RecallService:
    """The service, and which event is which."""

    system: Strandline
    database: Database
    embedder: Embedder
    keys: dict[str, str] = field(default_factory=dict[str, str])
    """API keys by tenant."""
    event_keys: dict[str, str] = field(default_factory=dict[str, str])
    """The corpus's key of each event id."""
    vectors: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def store(self, corpus: Corpus) -> None:
        """Append a corpus through the API, and let everything be embedded."""
        key = self.keys[corpus.name] = self.system.gateway.key(corpus.name)
        for events in itertools.batched(corpus.events, BATCH, strict=False):
            reply = self.system.gateway.call(
                "POST", "/api/v1/events/batch", {"events": list(events)}, key=key
            )
            if reply.status != 200 or reply.body["failed"]:
                raise RuntimeError(f"not every event was stored: {reply.text[:500]}")
            for event, result in zip(events, reply.body["results"], strict=True):
                self.event_keys[result["event"]["event_id"]] = event["source_event_key"]
        self.system.embed()

    def build(self, corpus: Corpus) -> None:
        """Fold a stored corpus to its end, and publish its topic index."""
        self.system.fold()
        totals = self.system.gateway.run_job("builder", corpus.name)
        if totals.get("scopes_failed") or not totals.get("snapshots_published"):
            raise RuntimeError(f"the topic index of {corpus.name} was not built: {totals}")

    def recall(self, asking: Asking, **fields: object) -> dict[str, Any]:
        """An answer of recall through the API."""
        return self._ask("/api/v1/recall", asking, {"limit": LIMIT, **fields})

    def references(self, asking: Asking, **fields: object) -> dict[str, Any]:
        """An answer of the references query through the API."""
        return self._ask("/api/v1/references/query", asking, fields)

    def _ask(self, path: str, asking: Asking, fields: Mapping[str, object]) -> dict[str, Any]:
        body: dict[str, object] = {
            "query": asking.question.text,
            "participants": list(asking.participants),
            **({"now": asking.question.asked_at} if asking.question.asked_at else {}),
            **fields,
        }
        reply = self.system.gateway.call("POST", path, body, key=self.keys[asking.tenant.name])
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {reply.text[:500]}")
        # A budget is asked for, and what it cuts is what is measured.
        if {*reply.body["degraded"]} - {"cut_by_budget"} or reply.body["not_yet_embedded"]:
            raise RuntimeError(f"{path} was degraded ({reply.body['degraded']})")
        return reply.body

    def hit_keys(self, answer: Mapping[str, Any]) -> list[str]:
        """The corpus's keys of an answer's hits, best first."""
        return [self.event_keys[hit["event_id"]] for hit in answer["hits"]]

    def candidates(self, asking: Asking, *, with_vector: bool) -> "Candidates":
        """What recall ranks for a question."""
        text = asking.question.text
        asked_at = asking.question.asked_at or asking.home.events[-1]["occurred_at"]
        now = datetime.fromisoformat(asked_at).astimezone(UTC)
        access = self.database.connect_as(
            Caller(asking.tenant.name, tuple(sorted(asking.participants)))
        )
        result = store.search_candidate_events(
            access,
            question=text,
            vector=self._vector(text) if with_vector else None,
            space=self.embedder.space,
            filters={},
            now=now,
        )
        rows = list(result.rows)
        head = rows[0] if rows else None
        texts = (head and head.words) or []
        counts = (head and head.document_counts) or [0] * len(texts)
        return Candidates(
            asking,
            recall_question.parse_names_and_dates(text, now.date()),
            [QuestionWord(word, count) for word, count in zip(texts, counts, strict=True)],
            rows,
            (head and head.events_in_view) or 0,
            (head and head.sampled_cosines) or [],
            (head and head.sampled_tool_cosines) or [],
            [self.event_keys[str(row.event_id)] in asking.evidence for row in rows],
        )

    def _vector(self, text: str) -> list[float]:
        if text not in self.vectors:
            (vector,) = self.embedder.embed([text], timeout=60.0, purpose="question")
            self.vectors[text] = list(vector)
        return self.vectors[text]


@dataclass(frozen=True)
class Candidates:
    """What recall ranks for a question, and which of it answers."""

    asking: Asking
    question: recall_question.QuestionNamesAndDates
    words: Sequence[QuestionWord]
    rows: Sequence[CandidateEvent]
    events_in_view: int
    sampled_cosines: Sequence[float]
    sampled_tool_cosines: Sequence[float]
    answers: Sequence[bool]


@contextmanager
def serve(corpora: Sequence[Corpus], embedder: Embedder) -> Generator[RecallService]:
    """The service with every corpus stored and embedded."""
    with TemporaryDirectory(prefix="strandline-recall-") as name:
        directory = Path(name)
        directory.chmod(0o711)  # the database runs as another account
        with (
            EmbeddedPostgres(directory / "postgres", durable=False) as server,
            strandline_system.open_strandline(server, embedder, directory) as system,
        ):
            database = Database(system.base.url)
            try:
                service = RecallService(system, database, embedder)
                for corpus in corpora:
                    service.store(corpus)
                yield service
            finally:
                database.close()


def candidates_of(
    service: RecallService, askings: Sequence[Asking], *, with_vector: bool
) -> Iterator[Candidates]:
    """What recall ranks for each question."""
    for asking in askings:
        yield service.candidates(asking, with_vector=with_vector)
