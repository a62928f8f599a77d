"""Model files that packages bring: found without running the packages' code, and read only if they
are the very bytes that this release was tested with."""

import hashlib
import importlib.util
from pathlib import Path

from strandline.errors import EmbeddingUnavailable


def find_package_folder(name: str) -> Path:
    """A package's folder, found without running its code: only its data is needed. Raises
    EmbeddingUnavailable if it is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddingUnavailable(
            f"The package {name} is not installed: deploy the model layer with this function, or "
            "install the `model` dependency group."
        )
    return Path(spec.submodule_search_locations[0])


def read_pinned_file(path: Path, sha256: str) -> bytes:
    """The file's bytes, checked against its SHA-256. Raises EmbeddingUnavailable if it cannot be
    read or is another file. Load the model from these bytes: the file can change after the
    check."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EmbeddingUnavailable(
            f"Cannot read {path} ({error.strerror}): reinstall the `model` dependency group from "
            "the lock, or rebuild the model layer."
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise EmbeddingUnavailable(
            f"{path} is not the pinned file: its SHA-256 is {digest}, expected {sha256}. Reinstall "
            "the `model` dependency group from the lock, or rebuild the model layer."
        )
    return data
