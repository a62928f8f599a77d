"""Paths and texts of memory files, as Claude's memory tool names and shows them."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

ROOT = "/memories"
MAX_FILE_BYTES = 1024 * 1024
_MAX_PATH_CHARS = 300
_MAX_LINES = 999_999
_NUMBER_WIDTH = len(str(_MAX_LINES))
_LISTED_LEVELS = 2
_LINES_AROUND = 2
_MOST_OCCURRENCES = 100


class MemoryCommandError(ValueError):
    """A command cannot be carried out. The text is the tool's, for the model to read."""


# Paths --------------------------------------------------------------------------------------------


def parse_path(path: str) -> str:
    """A path below `/memories` in its one form, such as `/memories/notes.md`. Raises
    MemoryCommandError for one that leads out of it, also where it is escaped as in an address."""
    if len(path) > _MAX_PATH_CHARS:
        raise MemoryCommandError(
            f"Path {path[:60]}… has {len(path)} characters, at most {_MAX_PATH_CHARS}."
        )
    plain = path
    while (once_more := unquote(plain)) != plain:
        plain = once_more
    for form in (path, plain):
        if "\\" in form or any(unicodedata.category(char) in ("Cc", "Cs") for char in form):
            raise MemoryCommandError(
                f"Path {path!r} has a backslash or a control character, which no path may have."
            )
    if plain != path and plain.count("/") != path.count("/"):
        raise MemoryCommandError(f"Path {path} has an escaped slash, which no path may have.")
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise MemoryCommandError(f"Path must start with {ROOT}, got: {path}")
    if any(part in (".", "..") for form in (path, plain) for part in form.split("/")):
        raise MemoryCommandError(f"Path {path} would escape {ROOT} directory")
    return "/" + "/".join(part for part in path.split("/") if part)


def is_below(path: str, directory: str) -> bool:
    """Whether a path lies in a directory, at any depth."""
    return path.startswith(f"{directory}/")


def list_ancestors(path: str) -> list[str]:
    """The directories that a path lies in, below `/memories`."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(3, len(parts))]


# What is shown ------------------------------------------------------------------------------------


def show_directory(directory: str, sizes: Mapping[str, int]) -> str:
    """A directory of files with these sizes in bytes: two levels, without hidden ones."""
    size_by_name: dict[str, int] = {}
    for path in sorted(sizes, key=lambda path: path.split("/")):
        parts = path[len(directory) + 1 :].split("/")
        for level in range(1, min(len(parts), _LISTED_LEVELS) + 1):
            if any(part.startswith(".") for part in parts[:level]):
                break
            is_directory = level < len(parts)
            name = f"{directory}/{'/'.join(parts[:level])}{'/' if is_directory else ''}"
            size_by_name[name] = size_by_name.get(name, 0) + sizes[path]
    lines = [f"{_format_size(sum(sizes.values()))}\t{directory}"]
    lines += [f"{_format_size(size)}\t{name}" for name, size in size_by_name.items()]
    return (
        f"Here're the files and directories up to {_LISTED_LEVELS} levels deep in {directory},"
        " excluding hidden items:\n" + "\n".join(lines)
    )


def show_file(path: str, text: str, view_range: Sequence[int] | None) -> str:
    """A file with the numbers of its lines: all, or those from the first to the last of a range,
    in which -1 stands for the end."""
    lines = text.split("\n")
    if len(lines) > _MAX_LINES:
        raise MemoryCommandError(f"File {path} exceeds maximum line limit of {_MAX_LINES:,} lines.")
    first, last = view_range or (1, -1)
    first, last = max(1, first), len(lines) if last == -1 else min(last, len(lines))
    if view_range and not first <= last:
        raise MemoryCommandError(
            f"Invalid `view_range` parameter: {[*view_range]}. It should be [first, last] within"
            f" the lines of the file, [1, {len(lines)}]; -1 as last stands for the end."
        )
    text_with_numbers = "\n".join(_number_lines(lines, first, last))
    return f"Here's the content of {path} with line numbers:\n{text_with_numbers}"


def _number_lines(lines: Sequence[str], first: int, last: int) -> list[str]:
    return [f"{n:>{_NUMBER_WIDTH}}\t{lines[n - 1]}" for n in range(first, last + 1)]


def _format_size(size: int) -> str:
    if size < 1024:
        return f"{size}B"
    amount, unit = (size / 1024, "K") if size < 1024**2 else (size / 1024**2, "M")
    return f"{amount:.0f}{unit}" if amount == int(amount) else f"{amount:.1f}{unit}"


# Edits --------------------------------------------------------------------------------------------


def replace_text(path: str, text: str, old: str, new: str) -> tuple[str, str]:
    """The text with the one occurrence of `old` replaced, and what the tool says about it."""
    if not old:
        raise MemoryCommandError(
            "No replacement was performed, old_str is empty. Give the text that is to be replaced."
        )
    count = text.count(old)
    if not count:
        raise MemoryCommandError(
            f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}."
        )
    place = text.find(old)
    line = text.count("\n", 0, place)
    if count > 1:
        raise MemoryCommandError(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines:"
            f" {_list_lines_with(text, old)}. Please ensure it is unique"
        )
    new_text = text.replace(old, new)
    lines = new_text.split("\n")
    last = min(len(lines), line + 1 + _LINES_AROUND)
    snippet = _number_lines(lines, max(1, line + 1 - _LINES_AROUND), last)
    return new_text, (
        "The memory file has been edited. Here is the snippet showing the change (with line"
        " numbers):\n" + "\n".join(snippet)
    )


def _list_lines_with(text: str, part: str) -> str:
    """The numbers of the lines in which occurrences of a part begin, at most the first hundred."""
    numbers = list[str]()
    line, before, place = 1, 0, text.find(part)
    while place >= 0 and len(numbers) < _MOST_OCCURRENCES:
        line += text.count("\n", before, place)
        numbers.append(str(line))
        before, place = place, text.find(part, place + 1)
    return ", ".join([*numbers, "…"] if place >= 0 else numbers)


def insert_text(text: str, line: int, new: str) -> str:
    """The text with another one after this line; 0: at the beginning."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not 0 <= line <= len(lines):
        raise MemoryCommandError(
            f"Invalid `insert_line` parameter: {line}. It should be within the range"
            f" [0, {len(lines)}]."
        )
    lines.insert(line, new.rstrip("\n"))
    return "\n".join(lines) + "\n"


def require_storable_text(path: str, text: str) -> None:
    """Raises MemoryCommandError for a text that no file may have."""
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise MemoryCommandError(
            f"The text for {path} has a NUL or half a character, which no file may have."
        )
    size = len(text.encode())
    if size > MAX_FILE_BYTES:
        raise MemoryCommandError(
            f"The file {path} would have {size:,} bytes, at most {MAX_FILE_BYTES:,}. Split it."
        )
