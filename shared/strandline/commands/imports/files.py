"""The files that a command line names: themselves, those of folders, and members of archives."""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import BinaryIO

from strandline.commands.imports.archives import (
    MAX_MEMBERS,
    UnusableArchive,
    is_archive,
    list_members,
    open_archive,
    open_member,
)
from strandline.commands.imports.items import Refusal, SkippedFile

LINES = (".jsonl", ".ndjson")
_READ = (".json", *LINES)
READ_ERRORS = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
    UnicodeError,  # a member's name at its place
)
"""What reading a file or a member may raise."""
_OF_MACOS = "macOS wrote it beside another file"


@dataclass(frozen=True)
class ConversationFile:
    """A file that may hold conversations."""

    name: str
    """As messages and keys name it."""
    open: Callable[[], AbstractContextManager[BinaryIO]]

    @property
    def is_lines(self) -> bool:
        """Whether each line is a value."""
        return PurePosixPath(self.name).suffix.lower() in LINES


FoundFile = ConversationFile | SkippedFile | Refusal


def find_files(paths: Sequence[Path]) -> Iterator[FoundFile]:
    """The files of these paths, in order; of a folder by name."""
    for path in paths:
        yield from _name_fault(path.name or str(path), partial(_find_in_path, path))


def _name_fault(name: str, find: Callable[[], Iterator[FoundFile]]) -> Iterator[FoundFile]:
    """What is found, up to a fault: it costs this file or folder alone."""
    try:
        yield from find()
    except READ_ERRORS as error:
        yield Refusal(name, f"it cannot be opened ({error})")


def _find_in_path(path: Path) -> Iterator[FoundFile]:
    if path.is_dir():
        yield from _find_in_folder(path)
    else:
        yield from _find_in_file(path, path.name)


def _find_in_file(path: Path, name: str) -> Iterator[FoundFile]:
    mode = path.stat().st_mode
    if stat.S_ISFIFO(mode):
        yield ConversationFile(name, partial(path.open, "rb"))
    elif not stat.S_ISREG(mode):
        yield Refusal(name, "it is a device, not a file")
    elif is_archive(path):
        yield from _find_in_archive(path, name)
    else:
        yield ConversationFile(name, partial(path.open, "rb"))


def _find_in_folder(folder: Path) -> Iterator[FoundFile]:
    count = 0
    faults = list[OSError]()
    for root, folders, names in os.walk(folder, onerror=faults.append):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > MAX_MEMBERS:
                yield Refusal(str(folder), f"it has more than {MAX_MEMBERS:,} files")
                return
            path = Path(root, name)
            shown = path.relative_to(folder).as_posix()
            yield from _name_fault(shown, partial(_find_in_entry, path, shown))
    for fault in faults:
        place = Path(str(fault.filename)).relative_to(folder).as_posix()
        yield Refusal(place, f"it cannot be opened ({fault.strerror})")


def _find_in_entry(path: Path, shown: str) -> Iterator[FoundFile]:
    if path.is_symlink():
        yield SkippedFile(shown, "it is a link")
    elif path.is_fifo():
        yield SkippedFile(shown, "it is a pipe; name it itself to read it")
    elif _is_of_macos(path):
        yield SkippedFile(shown, _OF_MACOS)
    elif path.suffix.lower() in (*_READ, ".zip"):
        yield from _find_in_file(path, shown)
    else:
        yield SkippedFile(shown, "")


def _is_of_macos(path: PurePath) -> bool:
    return path.name.startswith("._") or path.parts[:1] == ("__MACOSX",)


def _find_in_archive(path: Path, name: str) -> Iterator[FoundFile]:
    try:
        archive = open_archive(path)
    except UnusableArchive as error:
        yield Refusal(name, str(error))
        return
    with archive:
        for member, reason in list_members(archive):
            shown = member.filename
            if _is_of_macos(PurePosixPath(shown)):
                yield SkippedFile(shown, _OF_MACOS)
            elif reason is not None:
                yield Refusal(f"{name}: {shown}", reason)
            elif PurePosixPath(shown).suffix.lower() in _READ:
                yield ConversationFile(shown, partial(open_member, archive, member))
            else:
                yield SkippedFile(shown, "")
