"""Objects of the local S3 as files: on disk before a write is acknowledged, and there again at the
next start."""

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from moto.s3.models import FakeKey, S3Backend
from moto.s3.utils import _VersionedKeyStore  # pyright: ignore[reportPrivateUsage] - moto's seam

# moto's FakeKey: this module replaces what it keeps in memory, which is private.
type MotoKey = Any

# `quote` never leaves a `+`, so it marks names that are not keys.
RESERVED_CHAR = "+"
# A file name holds 255 bytes and a quoted key up to 3072, so long names become nested folders.
MAX_NAME_BYTES = 200


class ObjectFolder:
    """The objects of one bucket, as files named by the URL-quoted key."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)  # names disclose tenants and contents

    def path(self, key: str) -> Path:
        """The file of `key`."""
        name = quote(key, safe="").replace(".", "%2E") if key in (".", "..") else quote(key, "")
        parts = [name[at : at + MAX_NAME_BYTES] for at in range(0, len(name), MAX_NAME_BYTES)]
        return self._directory.joinpath(*(part + RESERVED_CHAR for part in parts[:-1]), parts[-1])

    def write(self, key: str, content: bytes) -> None:
        """Store `content`. When this returns it is on disk; no reader ever sees a part of it."""
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=RESERVED_CHAR, dir=self._directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise
        _fsync_directory(path.parent)

    def remove(self, key: str) -> None:
        """Remove `key`; it stays removed even if the machine stops."""
        path = self.path(key)
        path.unlink(missing_ok=True)
        _fsync_directory(path.parent)

    def scan(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Every key and its file; removes half-written files of a crash on the way."""
        return self._scan_nested(self._directory, "")

    def _scan_nested(self, directory: Path, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir():
                    yield from self._scan_nested(
                        Path(entry), prefix + entry.name.removesuffix(RESERVED_CHAR)
                    )
                elif entry.name.startswith(RESERVED_CHAR):
                    os.unlink(entry)
                else:
                    yield unquote(prefix + entry.name), entry


class ObjectFileReader(threading.local):
    """Reads an object's bytes for moto, in place of its buffer in memory.

    Each thread has its own position: moto reads for an ETag without the object's lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def seek(self, position: int) -> None:
        self._position = position

    def read(self, size: int = -1) -> bytes:
        with self._path.open("rb") as file:
            file.seek(self._position)
            content = file.read(size)
        self._position += len(content)
        return content

    def close(self) -> None:
        """Do nothing: no file stays open between reads."""


class ObjectFilesOfBucket(_VersionedKeyStore):  # pyright: ignore[reportMissingTypeArgument]
    """A bucket's keys, each of them a file. Versioning is not supported: only the last version is
    stored.

    All of moto's ways to write an object (put, copy, multipart, form) end in `setlist`, and all its
    ways to delete one in `pop`.
    """

    def __init__(self, folder: ObjectFolder) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - a bare dict in moto
        self._folder = folder

    def setlist(self, key: str, list_: list[MotoKey]) -> None:
        if not list_:  # its last version is deleted: moto pops it next
            super().setlist(key, list_)
            return
        newest = list_[-1]
        if not isinstance(newest._value_buffer, ObjectFileReader):
            content = newest.value
            try:
                self._folder.write(key, content)
            except OSError:
                newest.dispose()  # moto drops it now, and warns of keys with open buffers
                raise
            if newest._etag is None:
                newest._etag = hashlib.md5(content, usedforsecurity=False).hexdigest()
            _replace_memory_by_file(newest, self._folder.path(key))
        super().setlist(key, list_)

    def pop(self, key: str) -> None:
        super().pop(key)
        self._folder.remove(key)

    def list_stored_objects(self, bucket: Any) -> None:
        """List the files that exist; each is read only when it is requested."""
        for name, entry in self._folder.scan():
            status = entry.stat()
            key: MotoKey = FakeKey(
                name=name,
                value=b"",
                account_id=bucket.account_id,
                region_name=bucket.region_name,
                bucket_name=bucket.name,
                version_id="null",
            )
            key.contentsize = status.st_size
            # moto uses naive times in UTC.
            key.last_modified = datetime.fromtimestamp(status.st_mtime, UTC).replace(tzinfo=None)
            _replace_memory_by_file(key, Path(entry))
            super().setlist(name, [key])


def keep_bucket_in_files(backend: S3Backend, bucket: str, directory: Path) -> None:
    """Store the objects of `bucket` in `directory` from now on, and list those that are there
    already."""
    moto_bucket = backend.buckets[bucket]
    keys = ObjectFilesOfBucket(ObjectFolder(directory))
    keys.list_stored_objects(moto_bucket)
    moto_bucket.keys = keys


def _replace_memory_by_file(key: MotoKey, path: Path) -> None:
    """Free the bytes in memory, including a multipart upload's parts."""
    key._value_buffer.close()
    key._value_buffer = ObjectFileReader(path)
    if key.multipart is not None:
        key.multipart.dispose()
        key.multipart = None


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
