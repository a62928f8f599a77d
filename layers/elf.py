"""Checks what machine code requires of its machine, by reading ELF files (System V ABI, "Object
Files"; symbol versions: Linux Standard Base, "Symbol Versioning")."""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_MACHINES: Mapping[str, int] = {"x86_64": 62, "arm64": 183}  # EM_X86_64, EM_AARCH64
_VERNEED, _DYNAMIC = 0x6FFFFFFE, 6  # section types: SHT_GNU_verneed, SHT_DYNAMIC
_NEEDED_TAG = 1  # DT_NEEDED
MAX_VERSIONS: Mapping[str, tuple[int, ...]] = {
    "GLIBC": (2, 34),
    "GLIBCXX": (3, 4, 29),
    "CXXABI": (1, 3, 13),
    "GCC": (11,),
}
"""The versions in Amazon Linux 2023, on which Lambda runs Python 3.13: glibc 2.34, GCC 11."""
_SYSTEM_LIBRARIES = frozenset({
    "ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libgcc_s.so.1",
    "libm.so.6", "libpthread.so.0", "libresolv.so.2", "librt.so.1", "libstdc++.so.6",
    "libutil.so.1", "libz.so.1",
})  # fmt: skip
"""Libraries in the smallest image of Amazon Linux 2023."""


class Elf(NamedTuple):
    """The requirements of one file."""

    machine: int
    libraries: frozenset[str]
    """Names of the libraries that it is linked with."""
    versions: frozenset[str]
    """Symbol versions that it requires of them, such as GLIBC_2.17."""


def read_elf(data: bytes) -> Elf:
    """The requirements of a 64-bit little-endian ELF file."""
    if data[4:6] != b"\x02\x01":
        raise ValueError("not a 64-bit little-endian file")
    (machine,) = struct.unpack_from("<H", data, 18)
    (sections,) = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", data, sections + entry_size * i) for i in range(count)
    ]
    libraries: set[str] = set()
    versions: set[str] = set()
    for _, kind, _, _, start, length, link, entries, _, _ in headers:
        if kind == _DYNAMIC:
            names = headers[link][4]
            tags = struct.iter_unpack("<qQ", data[start : start + length])
            libraries |= {_name(data, names + at) for tag, at in tags if tag == _NEEDED_TAG}
        elif kind == _VERNEED:
            versions |= set(_versions(data, start, entries, headers[link][4]))
    return Elf(machine, frozenset(libraries), frozenset(versions))


def _versions(data: bytes, start: int, files: int, names: int) -> Iterator[str]:
    """Read Elfxx_Verneed, one for each library, each followed by its Elfxx_Vernaux."""
    for _ in range(files):
        _, count, _, first, following = struct.unpack_from("<HHIII", data, start)
        at = start + first
        for _ in range(count):
            _, _, _, name, further = struct.unpack_from("<IHHII", data, at)
            yield _name(data, names + name)
            at += further
        start += following


def _name(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def find_faults(directory: Path, arch: str) -> list[str]:
    """Reasons, by file, why a directory would not load in Lambda on this architecture."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and _is_elf(path)]
    own = {path.name for path in files}
    problems: list[str] = []
    for path in files:
        elf = read_elf(path.read_bytes())
        if elf.machine != _MACHINES[arch]:
            problems.append(f"{path}: for another machine ({elf.machine})")
        problems += [f"{path}: needs {v}" for v in sorted(elf.versions) if not _is_available(v)]
        problems += [f"{path}: needs {n}" for n in sorted(elf.libraries - own - _SYSTEM_LIBRARIES)]
    return problems


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _is_available(version: str) -> bool:
    library, _, number = version.partition("_")
    if library not in MAX_VERSIONS:
        return True  # a version of one of the wheel's own libraries
    return tuple(int(part) for part in number.split(".")) <= MAX_VERSIONS[library]


def check(directory: Path, arch: str) -> None:
    """End the program if a file would not load."""
    if problems := find_faults(directory, arch):
        raise SystemExit("layers: this would not load in Lambda:\n" + "\n".join(problems))
