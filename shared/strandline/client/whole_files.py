"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def open_atomic_draft(target: Path) -> Generator[Path]:
    """A draft for the `with` block to write, of a name of its own. At the end it becomes the
    target: a file, or what a link leads to, is replaced and keeps its mode; a new one is its
    owner's alone. A pipe or a device gets the bytes and stays what it is. After an error the
    target is as it was. Raises OSError, which names the target where it has no folder."""
    place = Path(os.path.realpath(target))
    if not place.parent.is_dir():
        nearest = next(one for one in place.parents if one.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{nearest} is no folder", str(target))
        raise FileNotFoundError(errno.ENOENT, "Its folder does not exist", str(target))
    is_stream = place.exists() and not place.is_file()
    number, name = tempfile.mkstemp(".draft", ".strandline-", None if is_stream else place.parent)
    os.close(number)
    draft = Path(name)
    try:
        yield draft
        if is_stream:
            with draft.open("rb") as source, place.open("wb") as stream:
                shutil.copyfileobj(source, stream)
        else:
            with suppress(FileNotFoundError):
                shutil.copymode(place, draft)
            draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)
