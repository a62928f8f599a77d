"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import click
from rich.console import Console
from rich.progress import Progress, ProgressColumn
from rich.table import Table
from rich.text import Text

from strandline.client.errors import ServiceError, add_hint

_MAX_FOLDED = 5
"""A table with more columns is not folded."""
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
_JSON_CONTROLS = {code: f"\\u{code:04x}" for code in range(127, 160)}
"""Controls that JSON leaves as they are."""


_WHO = "Say for whom: --user NAME, --agent NAME or --participant KIND:NAME."
_HINTS = {
    "unauthorized": "Give a valid key with --key, or set STRANDLINE_API_KEY.",
    "not_found": "Check the id or the name, and for whom it reads (--user, --agent).",
    "too_large": "Store a large text or a file with `strandline upload`.",
}
"""The way out in the words of the command line, by the code of an error."""


def explain_error_for_cli(error: ServiceError) -> str:
    """The sentence of an error with the way out as options of a command, not as arguments of the
    client or members of a request."""
    quote = f" (request {error.request_id})" if error.request_id else ""
    message = error.message.replace(
        "send the request again with the Idempotency-Key of `details` for an answer",
        "`strandline ask` answers it without storing it again",
    ).replace("put `block` into", "put what `strandline context` prints into")
    if error.field == "participants":
        if "say who" in message or "on whose behalf" in message:
            may_be_all = "everybody" in message
            message = "participants: nobody is named."
            return f"{message} {_WHO}{' Or --everybody.' if may_be_all else ''}{quote}"
        return add_hint(message, _WHO) + quote
    hint = error.hint and _HINTS.get(error.code, error.hint)
    return add_hint(message, hint) + quote


def strip_controls(text: str) -> str:
    """A text without the characters that a terminal obeys."""
    return text.translate(_CONTROLS)


def print_text(text: str, *, err: bool = False) -> None:
    """Lines for people, of which a terminal obeys nothing."""
    click.echo(strip_controls(text), err=err)


def print_json(value: Any) -> None:
    """One JSON document; of models and lists of models."""
    click.echo(_dump_json(value, indent=2))


def print_json_line(value: Any) -> None:
    """One line of JSON Lines."""
    click.echo(_dump_json(value))


def _dump_json(value: Any, indent: int | None = None) -> str:
    text = json.dumps(_dump_models(value), ensure_ascii=False, indent=indent)
    return text.translate(_JSON_CONTROLS)


def _dump_models(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [_dump_models(item) for item in cast("Sequence[Any]", value)]
    return value


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    empty: str,
    colours: Mapping[str, str] | None = None,
) -> None:
    """A table, or a sentence where it would be empty; a table of many columns that is wider than
    the terminal as one block of lines for each row. Stored text is never read as markup. `colours`
    are styles for values that are words of ours."""
    styles = colours or {}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):  # the first is often an id, which one copies
        table.add_column(column, overflow="fold", no_wrap=place == 0)
    cells = [[format_cell(value) for value in row] for row in rows]
    for row in cells:
        table.add_row(*(Text(text, style=styles.get(text, "")) for text in row))
    console = Console()
    if not cells:
        click.echo(empty)
    elif len(columns) > _MAX_FOLDED and _measure_table_width([columns, *cells]) > console.width:
        print_text("\n\n".join(_format_row_as_lines(columns, row) for row in cells))
    else:
        console.print(table)


def _measure_table_width(rows: Sequence[Sequence[str]]) -> int:
    """The width of a table in which nothing is folded."""
    return sum(max(map(len, column)) + 1 for column in zip(*rows, strict=True))


def _format_row_as_lines(columns: Sequence[str], row: Sequence[str]) -> str:
    width = max(map(len, columns))
    return "\n".join(f"{n:<{width}}  {text}" for n, text in zip(columns, row, strict=True) if text)


def make_progress_bar(*columns: ProgressColumn) -> Progress:
    """A progress bar beside the output, on a terminal only."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def format_cell(value: object) -> str:
    """A value in a cell: times to the minute, control characters as spaces."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return ", ".join(format_cell(item) for item in cast("Sequence[object]", value))
    return "".join(c if c.isprintable() else " " for c in str(value))
