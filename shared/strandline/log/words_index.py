"""How recall ranks: the constants of fusion, and the text of an event that is indexed.

Reciprocal rank fusion after Cormack, Clarke and Büttcher (SIGIR 2009): an event's score is the sum
over its lists of weight / (K + rank). K = 10 and 1 : 0.5 were measured on LoCoMo's turns with the
shipped model (`make bench`); the usual K = 60 flattens what the best ranks say.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from strandline.participants import display_name

RRF_K = 10
TEXT_WEIGHT = 1.0
VECTOR_WEIGHT = 0.5
# Events without a vector yet, newest first: so low that they only fill up what words left empty,
# and never nothing, so that a fresh event can be found by any question.
FRESH_WEIGHT = 0.05
CANDIDATES = 200
"""How many of each list are fused."""
MAX_FRESH = 50

PIECE_CHARS = 16 * 1024
"""Large content is indexed in pieces: a tsvector ends at 1 MiB, and long ones rank badly."""
INDEXED_CHARS = 1024 * 1024


def split_pieces(text: str) -> Iterator[tuple[int, int]]:
    """Where the indexed pieces of a text start and end, in characters: the first 1 MiB of it, cut
    at white space where there is some near."""
    start, limit = 0, min(len(text), INDEXED_CHARS)
    if limit == 0:
        yield 0, 0
    while start < limit:
        end = min(start + PIECE_CHARS, limit)
        if end < limit:
            cut = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
            if cut > start + PIECE_CHARS // 2:
                end = cut + 1
        yield start, end
        start = end


def format_date(moment: datetime) -> str:
    """The day as people say it: 8 May 2023. The same words as append indexes."""
    return f"{moment.astimezone(UTC):%-d %B %Y}"


def format_event(said_at: datetime, speaker: str | None, text: str) -> str:
    """What a model is shown of an event: its day, its speaker, its text."""
    line = f"{display_name(speaker)}: {text}" if speaker else text
    return f"[{format_date(said_at)}] {line}"
