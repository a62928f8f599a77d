"""ZIP archives, read without unpacking them to the disk. Their limits stop an archive that would
fill the memory or never end."""

from __future__ import annotations

import stat
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

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
_ARCHIVES = (".zip", ".gz", ".tgz", ".tar", ".bz2", ".xz", ".7z", ".rar", ".zst")


class UnusableArchive(Exception):
    """The archive is over a limit, or broken."""


def is_archive(path: Path) -> bool:
    """Whether a file is a ZIP archive, by its first bytes. Raises OSError."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def open_archive(path: Path) -> zipfile.ZipFile:
    """An archive within the limits. Raises UnusableArchive, OSError."""
    with path.open("rb") as file:
        count, directory_bytes = _read_end(file)
    if count > MAX_MEMBERS or directory_bytes > _MAX_DIRECTORY_BYTES:
        raise UnusableArchive(f"it has more than {MAX_MEMBERS:,} members")
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnusableArchive(f"it cannot be read ({error})") from None
    members = archive.infolist()
    total = sum(member.file_size for member in members)
    packed = sum(member.compress_size for member in members)
    reason = None
    if len(members) > MAX_MEMBERS:
        reason = f"it has more than {MAX_MEMBERS:,} members"
    elif total > MAX_TOTAL_BYTES:
        reason = f"its members have {total:,} bytes, more than {MAX_TOTAL_BYTES:,}"
    elif total > MAX_RATIO * max(packed, 1):
        reason = f"it is packed more than {MAX_RATIO} to 1"
    if reason is None:
        return archive
    archive.close()
    raise UnusableArchive(reason)


def list_members(archive: zipfile.ZipFile) -> Iterator[tuple[zipfile.ZipInfo, str | None]]:
    """The files by name, each with the reason for which it is not read, if there is one."""
    seen = set[str]()
    for member in sorted(archive.infolist(), key=lambda member: member.filename):
        if not member.is_dir():
            is_double = member.filename in seen
            yield member, "its name is there twice" if is_double else _reason_against(member)
            seen.add(member.filename)


def _reason_against(member: zipfile.ZipInfo) -> str | None:
    name = member.filename
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.parts:
        return "it has no name"
    if ".." in path.parts or path.is_absolute() or ":" in path.parts[0] or "\0" in name:
        return "its name leads out of the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "it is a link"
    if path.suffix.lower() in _ARCHIVES:
        return "it is an archive within the archive; import it by itself"
    if member.flag_bits & _ENCRYPTED:
        return "it is encrypted"
    if member.compress_type not in _METHODS:
        return "it is packed by a method other than deflate and bzip2"
    if member.file_size > MAX_RATIO * max(member.compress_size, 1):
        return f"it is packed more than {MAX_RATIO} to 1"
    return None


def open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> BinaryIO:
    """A member as a stream, which gives no more bytes than the archive says that it has. Raises
    zipfile.BadZipFile, NotImplementedError."""
    return cast("BinaryIO", archive.open(member))


def _read_end(file: BinaryIO) -> tuple[int, int]:
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
