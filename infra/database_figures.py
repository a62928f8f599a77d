"""What the database does for a call, as measured: infra/database_figures.json, which `make bench
NAME=database-cpu ARGS=--write` writes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).with_suffix(".json")
PAGE_BYTES = 8192


@dataclass(frozen=True)
class RecallFigures:
    """A recall by a caller who sees `in_view` events, on average; milliseconds of CPU."""

    in_view: int
    database_ms: float
    function_ms: float
    """Without embedding the question."""
    cold_pages: int
    """Pages that a recall reads when none of the tenant's are cached."""
    hot_pages: int
    """Different pages that a hundred recalls read."""

    @property
    def hot_bytes(self) -> int:
        """What must be cached for a caller's recalls to read no storage."""
        return self.hot_pages * PAGE_BYTES


@dataclass(frozen=True)
class EventFigures:
    """An event, on average; milliseconds of the database's CPU unless said."""

    append_ms: float
    """In a call of its own."""
    append_in_batch_ms: float
    """In a batch of a hundred."""
    embedding_ms: float
    """To read its text and store its vector and words."""
    fold_ms: float
    jobs_ms: float
    """Its share of a run of every job over a thousand and more events."""
    append_function_ms: float
    """Of the ingest function's CPU, in a call of its own."""
    worker_ms: float
    """Of the worker's CPU, the included embedding models with it."""

    @property
    def database_ms(self) -> float:
        """Appended in a call of its own, with everything that follows."""
        return self.append_ms + self.embedding_ms + self.fold_ms + self.jobs_ms


@dataclass(frozen=True)
class DatabaseFigures:
    """All of them; recalls by the events in view."""

    recall: Mapping[int, RecallFigures]
    event: EventFigures


def read_database_figures(path: Path = FIGURES) -> DatabaseFigures:
    """What was measured. Raises ValueError for a file that is not of this form."""
    try:
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
        recalls = [RecallFigures(**row) for row in document["recall"]]
        return DatabaseFigures(
            {row.in_view: row for row in recalls}, EventFigures(**document["event"])
        )
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path.name}: {error}: write it again by make bench NAME=database-cpu ARGS=--write"
        ) from error
