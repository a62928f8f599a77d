"""How long an answer may be: clients cut off, or keep from the model, what has more than 25,000
tokens. What is cut is marked, with the way to the rest."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

MAX_TOKENS = 16_000
"""Tokens of an answer, as `count_tokens` counts them. It counts at least two thirds of what a
tokenizer makes of any text that is no noise of signs, so that an answer stays below 25,000."""
_MAX_CHARS = 5 * MAX_TOKENS
"""Characters of an answer, whatever they are: some clients count four to a token."""
_PIECE = re.compile(r"[A-Z]?[a-z]{1,4}|[A-Z]{1,3}|[0-9]{1,2}|[!-/:-@\[-`{-~]|\n|[^\x00-\x7f]")
"""What a tokenizer makes a token of, at the least favourable."""
TEXT_CHARS = (4000, 1000, 200)
"""The lengths to which texts in JSON are cut, one after the other, until it is short enough."""
_TRIES = 4


def count_tokens(text: str) -> int:
    """An estimate of a text's tokens, rather too high."""
    if text.isascii():
        return sum(1 for _ in _PIECE.finditer(text))
    return sum(_count_half_tokens_of_piece(piece[0]) for piece in _PIECE.finditer(text)) // 2


def _count_half_tokens_of_piece(piece: str) -> int:
    """Half tokens: two of a piece in ASCII, one of each byte of another character."""
    return 2 if piece.isascii() else len(piece.encode())


def fits_token_limit(text: str) -> bool:
    """Whether an answer may have this text."""
    if len(text) > _MAX_CHARS:
        return False
    return len(text.encode()) <= MAX_TOKENS or count_tokens(text) <= MAX_TOKENS


def count_fitting_chars(text: str, max_tokens: int = MAX_TOKENS) -> int:
    """How many characters from the beginning of a text an answer may have."""
    room = 2 * max_tokens
    text = text[:_MAX_CHARS]
    for piece in _PIECE.finditer(text):
        room -= _count_half_tokens_of_piece(piece[0])
        if room < 0:
            return piece.start()
    return len(text)


def take_fitting_lines(lines: Sequence[str]) -> Sequence[str]:
    """The first lines, as many as an answer may have."""
    if fits_token_limit("\n".join(lines)):
        return lines
    room = MAX_TOKENS
    for n, line in enumerate(lines):
        room -= count_tokens(line) + 1
        if room < 0:
            return lines[:n]
    return lines


def fetch_page_that_fits(
    ask: Callable[[int], Any], write_lines: Callable[[Any], Sequence[str]], limit: int
) -> tuple[Any, Sequence[str]]:
    """A page of a list, and its lines: with fewer entries than `limit` where these would be too
    long, so that the page's cursor leads to the rest."""
    page = ask(limit)
    for attempt in range(_TRIES):
        lines = write_lines(page)
        tokens = count_tokens("\n".join(lines))
        if tokens <= MAX_TOKENS or limit == 1:
            break
        limit = max(1, limit * MAX_TOKENS // (tokens + MAX_TOKENS // 4))
        page = ask(1 if attempt == _TRIES - 1 else limit)
    return page, write_lines(page)


def shorten_json_to_fit(value: object, write: Callable[[object], str]) -> tuple[str, str]:
    """JSON as `write` writes it, short enough for an answer, and a note on what was cut; the note
    is empty where nothing was."""
    text = write(value)
    if fits_token_limit(text):
        return text, ""
    for max_chars in TEXT_CHARS:
        value = cut_texts_in_json(value, max_chars)
        text = write(value)
        if fits_token_limit(text):
            return text, f"texts are cut after {max_chars:,} characters"
    entries = 0
    while not fits_token_limit(text):
        longest = _find_longest_list_in_json(value)
        if longest is None:
            return write(None), "it is too long to be shown"
        entries += len(longest) - len(longest) // 2
        del longest[len(longest) // 2 :]
        text = write(value)
    note = f"texts are cut after {TEXT_CHARS[-1]:,} characters, and {entries:,} entries are left"
    return text, f"{note} out at the ends of lists"


def cut_texts_in_json(value: object, max_chars: int) -> object:
    """A copy with texts cut to a length."""
    if isinstance(value, str):
        return value if len(value) <= max_chars else f"{value[:max_chars]}…"
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        return {name: cut_texts_in_json(member, max_chars) for name, member in members}
    if isinstance(value, list):
        return [cut_texts_in_json(item, max_chars) for item in cast("list[object]", value)]
    return value


def _find_longest_list_in_json(value: object) -> list[object] | None:
    """The list whose JSON is the longest and that can be cut; None without any."""
    lists: list[list[object]] = []
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            items = cast("list[object]", one)
            lists += [items] if items else []
            todo += items
        elif isinstance(one, Mapping):
            todo += cast("Mapping[str, object]", one).values()
    # an outer list holds the inner ones: it is cut only where it has several entries
    several = [items for items in lists if len(items) > 1] or lists
    return max(several, key=lambda items: len(json.dumps(items, default=str)), default=None)
