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


def print_json(value: Any) -> None:
    """One JSON document; of models and lists of models."""
    click.echo(json.dumps(_dump_models(value), ensure_ascii=False, indent=2))


def print_json_line(value: Any) -> None:
    """One line of JSON Lines."""
    click.echo(json.dumps(_dump_models(value), ensure_ascii=False))


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
    """A table, or a sentence where it would be empty. Stored text is never read as markup.
    `colours` are styles for values that are words of ours."""
    styles = colours or {}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):  # the first is often an id, which one copies
        table.add_column(column, overflow="fold", no_wrap=place == 0)
    count = 0
    for row in rows:
        table.add_row(
            *(Text(format_value(value), style=styles.get(str(value), "")) for value in row)
        )
        count += 1
    if count:
        Console().print(table)
    else:
        click.echo(empty)


def make_progress(*columns: ProgressColumn) -> Progress:
    """A progress bar beside the output, on a terminal only."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def format_value(value: object) -> str:
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
        return ", ".join(format_value(item) for item in cast("Sequence[object]", value))
    return "".join(c if c.isprintable() else " " for c in str(value))
