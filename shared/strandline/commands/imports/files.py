"""The files that a command line names: themselves, those of folders, and members of ZIP archives.
These are read without unpacking them to the disk. Their limits stop an archive that would fill the
memory."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import BinaryIO, cast

from strandline.commands.imports.items import RefusedItem, SkippedFile

LINES = (".jsonl", ".ndjson")
_READ = (".json", *LINES)
READ_ERRORS = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
    UnicodeError,  # a member's name at its place
)
"""What reading a file or a member may raise."""
_OF_MACOS = "macOS wrote it beside another file"
MAX_MEMBERS = 10_000
MAX_TOTAL_BYTES = 20 * 1000**3
MAX_RATIO = 100
_MAX_DIRECTORY_BYTES = MAX_MEMBERS * 1024
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
"""Others may ask for gigabytes of memory to be unpacked."""
ARCHIVES = (".zip", ".gz", ".tgz", ".tar", ".bz2", ".xz", ".7z", ".rar", ".zst")


class UnusableArchive(Exception):
    """The archive is over a limit, or broken."""


def is_zip_archive(path: Path) -> bool:
    """Whether a file is a ZIP archive, by its first bytes. Raises OSError."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def open_archive_within_limits(path: Path) -> zipfile.ZipFile:
    """An archive within the limits. Raises UnusableArchive, OSError."""
    with path.open("rb") as file:
        count, directory_bytes = _read_member_count_and_list_size(file)
    if count > MAX_MEMBERS or directory_bytes > _MAX_DIRECTORY_BYTES:
        raise UnusableArchive(f"it has more than {MAX_MEMBERS:,} members")
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnusableArchive(f"it cannot be read ({error})") from None
    members = archive.infolist()
    total = sum(member.file_size for member in members)
    packed_size = sum(member.compress_size for member in members)
    reason = None
    if len(members) > MAX_MEMBERS:
        reason = f"it has more than {MAX_MEMBERS:,} members"
    elif total > MAX_TOTAL_BYTES:
        reason = f"its members have {total:,} bytes, more than {MAX_TOTAL_BYTES:,}"
    elif total > MAX_RATIO * max(packed_size, 1):
        reason = f"it is packed more than {MAX_RATIO} to 1"
    if reason is None:
        return archive
    archive.close()
    raise UnusableArchive(reason)


def iterate_members_with_objections(
    archive: zipfile.ZipFile,
) -> Iterator[tuple[zipfile.ZipInfo, str | None]]:
    """The files by name, each with the reason for which it is not read, if there is one."""
    seen_names = set[str]()
    for member in sorted(archive.infolist(), key=lambda member: member.filename):
        if not member.is_dir():
            is_double = member.filename in seen_names
            yield (
                member,
                "its name is there twice" if is_double else _find_objection_to_member(member),
            )
            seen_names.add(member.filename)


def _find_objection_to_member(member: zipfile.ZipInfo) -> str | None:
    name = member.filename
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.parts:
        return "it has no name"
    if ".." in path.parts or path.is_absolute() or ":" in path.parts[0] or "\0" in name:
        return "its name leads out of the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "it is a link"
    if path.suffix.lower() in ARCHIVES:
        return "it is an archive within the archive; import it by itself"
    if member.flag_bits & _ENCRYPTED:
        return "it is encrypted"
    if member.compress_type not in _METHODS:
        return "it is packed by a method other than deflate and bzip2"
    if member.file_size > MAX_RATIO * max(member.compress_size, 1):
        return f"it is packed more than {MAX_RATIO} to 1"
    return None


def open_archive_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> BinaryIO:
    """A member as a stream, which gives no more bytes than the archive says that it has. Raises
    zipfile.BadZipFile, NotImplementedError."""
    return cast("BinaryIO", archive.open(member))


def _read_member_count_and_list_size(file: BinaryIO) -> tuple[int, int]:
    """How many members an archive says that it has, and the bytes of their list, without reading
    it. Raises UnusableArchive."""
    size = file.seek(0, 2)
    tail_bytes = min(size, _END.size + 0xFFFF + _LOCATOR.size)
    file.seek(size - tail_bytes)
    tail = file.read(tail_bytes)
    place = tail.rfind(b"PK\x05\x06")
    if place < 0 or place + _END.size > len(tail):
        raise UnusableArchive("it breaks off: its list of members is not there")
    end = _END.unpack_from(tail, place)
    count, directory_bytes = end[4], end[5]
    before = place - _LOCATOR.size
    if before >= 0 and tail[before : before + 4] == b"PK\x06\x07":
        file.seek(min(_LOCATOR.unpack_from(tail, before)[2], size))
        record = file.read(_END_64.size)
        if len(record) == _END_64.size and record[:4] == b"PK\x06\x06":
            end = _END_64.unpack(record)
            count, directory_bytes = max(count % 0xFFFF, end[7]), end[8]
    return count, directory_bytes


@dataclass(frozen=True)
class ConversationFile:
    """A file that may hold conversations."""

    name: str
    """As messages and keys name it."""
    open: Callable[[], AbstractContextManager[BinaryIO]]
    is_named: bool = False
    """Whether the caller named it, and not only a folder or an archive that it lies in."""

    @property
    def has_value_per_line(self) -> bool:
        """Whether each line is a value."""
        return PurePosixPath(self.name).suffix.lower() in LINES


FoundFile = ConversationFile | SkippedFile | RefusedItem


def walk_paths(paths: Sequence[Path]) -> Iterator[FoundFile]:
    """The files of these paths, in order; of a folder by name."""
    for path in paths:
        yield from _turn_read_error_into_refusal(path.name or str(path), partial(_walk_path, path))


def _turn_read_error_into_refusal(
    name: str, find: Callable[[], Iterator[FoundFile]]
) -> Iterator[FoundFile]:
    """What is found, up to a fault: it costs this file or folder alone."""
    try:
        yield from find()
    except READ_ERRORS as error:
        yield RefusedItem(name, f"it cannot be opened ({error})")


def _walk_path(path: Path) -> Iterator[FoundFile]:
    if path.is_dir():
        yield from _walk_folder(path)
    else:
        yield from _walk_file(path, path.name, is_named=True)


def _walk_file(path: Path, name: str, *, is_named: bool = False) -> Iterator[FoundFile]:
    mode = path.stat().st_mode
    if stat.S_ISFIFO(mode):
        yield ConversationFile(name, partial(path.open, "rb"), is_named)
    elif not stat.S_ISREG(mode):
        yield RefusedItem(name, "it is a device, not a file")
    elif is_zip_archive(path):
        yield from _walk_archive(path, name)
    else:
        yield ConversationFile(name, partial(path.open, "rb"), is_named)


def _walk_folder(folder: Path) -> Iterator[FoundFile]:
    count = 0
    faults = list[OSError]()
    for root, folders, names in os.walk(folder, onerror=faults.append):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > MAX_MEMBERS:
                yield RefusedItem(str(folder), f"it has more than {MAX_MEMBERS:,} files")
                return
            path = Path(root, name)
            display_name = path.relative_to(folder).as_posix()
            yield from _turn_read_error_into_refusal(
                display_name, partial(_walk_folder_entry, path, display_name)
            )
    for fault in faults:
        place = Path(str(fault.filename)).relative_to(folder).as_posix()
        yield RefusedItem(place, f"it cannot be opened ({fault.strerror})")


def _walk_folder_entry(path: Path, display_name: str) -> Iterator[FoundFile]:
    if path.is_symlink():
        yield SkippedFile(display_name, "it is a link")
    elif path.is_fifo():
        yield SkippedFile(display_name, "it is a pipe; name it itself to read it")
    elif _is_macos_metadata(path):
        yield SkippedFile(display_name, _OF_MACOS)
    elif path.suffix.lower() in (*_READ, ".zip"):
        yield from _walk_file(path, display_name)
    else:
        yield SkippedFile(display_name, "")


def _is_macos_metadata(path: PurePath) -> bool:
    return path.name.startswith("._") or path.parts[:1] == ("__MACOSX",)


def _walk_archive(path: Path, name: str) -> Iterator[FoundFile]:
    try:
        archive = open_archive_within_limits(path)
    except UnusableArchive as error:
        yield RefusedItem(name, str(error))
        return
    with archive:
        for member, reason in iterate_members_with_objections(archive):
            display_name = member.filename
            if _is_macos_metadata(PurePosixPath(display_name)):
                yield SkippedFile(display_name, _OF_MACOS)
            elif reason is not None:
                yield RefusedItem(f"{name}: {display_name}", reason)
            elif PurePosixPath(display_name).suffix.lower() in _READ:
                yield ConversationFile(display_name, partial(open_archive_member, archive, member))
            else:
                yield SkippedFile(display_name, "")
