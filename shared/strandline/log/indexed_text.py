"""The text of an event that is indexed, and what of it a model is given."""

from collections.abc import Iterator
from datetime import UTC, datetime

from strandline.participants import display_name

PIECE_CHARS = 16 * 1024
"""Large content is indexed in pieces of this many characters: a tsvector is limited to 1 MiB, and
long ones rank badly."""
INDEXED_CHARS = 1024 * 1024


def split_into_index_spans(text: str) -> Iterator[tuple[int, int]]:
    """The (start, end) of each indexed piece of a text, in characters: the first 1 MiB, cut at
    white space where there is some near."""
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


def format_utc_date_in_words(moment: datetime) -> str:
    """The UTC date in words, as in `8 May 2023`. Append indexes the same words."""
    return f"{moment.astimezone(UTC):%-d %B %Y}"


def format_event_for_model(said_at: datetime, speaker: str | None, text: str) -> str:
    """An event as text for a model: its date, its speaker and its content."""
    line = f"{display_name(speaker)}: {text}" if speaker else text
    return f"[{format_utc_date_in_words(said_at)}] {line}"
