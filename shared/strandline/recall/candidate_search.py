"""The candidates for a question with the words that it is searched by, misspelt ones included."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import SnapshotRead, TenantDb
from strandline.recall import store
from strandline.recall.features import QuestionWord
from strandline.recall.spellings import OtherSpelling, find_other_spellings
from strandline.recall.store import CandidateRow


@dataclass(frozen=True)
class FoundCandidates:
    """The candidates for a question."""

    result: SnapshotRead[CandidateRow]
    words: Sequence[QuestionWord]

    @property
    def head(self) -> CandidateRow | None:
        """The candidate with what is common to all; None without candidates."""
        return find_head(self.result)

    @property
    def events_in_view(self) -> int:
        """The number of visible events, regardless of the filter."""
        return (self.head and self.head.events_in_view) or 0

    @property
    def samples(self) -> tuple[Sequence[float], Sequence[float]]:
        """The question's cosines with a sample of the view, without tools' output, and with it."""
        head = self.head
        return (head and head.sampled_cosines) or (), (head and head.sampled_tool_cosines) or ()


def find_candidates(
    access: TenantDb,
    *,
    question: str,
    vector: Sequence[float] | None,
    space: str,
    filters: Mapping[str, Any],
    now: datetime,
    scopes: Sequence[UUID] | None,
) -> FoundCandidates:
    """Find the candidates for a question, as `search_candidate_events`. If a word that no visible
    event contains has another spelling in view, that is searched for as well."""

    def search(spellings: Sequence[OtherSpelling]) -> FoundCandidates:
        result = store.search_candidate_events(
            access,
            question=question,
            vector=vector,
            space=space,
            filters=filters,
            now=now,
            scopes=scopes,
            spellings=[spelling.word for spelling in spellings],
        )
        return FoundCandidates(result, to_question_words(find_head(result), spellings))

    first_search = search(())
    spellings = find_other_spellings(access, question, first_search.words, scopes)
    return search(spellings) if spellings else first_search


def find_head(result: SnapshotRead[CandidateRow]) -> CandidateRow | None:
    """The row with what is common to all candidates; None without candidates."""
    return next((row for row in result.rows if row.events_in_view is not None), None)


def to_question_words(
    head: CandidateRow | None, spellings: Sequence[OtherSpelling] = ()
) -> list[QuestionWord]:
    """The words that were searched for, with the number of visible events that contain each. Other
    spellings are the last of them."""
    if head is None or not head.words:
        return []
    counts = head.document_counts or [0] * len(head.words)
    words = [QuestionWord(text, count) for text, count in zip(head.words, counts, strict=True)]
    own_count = len(words) - len(spellings)
    respelled = [
        word._replace(stands_for=spelling.stands_for, certainty=spelling.certainty)
        for word, spelling in zip(words[own_count:], spellings, strict=True)
    ]
    return words[:own_count] + respelled
