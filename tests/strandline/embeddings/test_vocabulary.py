"""How a text is split into the tokens of the multilingual model."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from strandline.embeddings.multilingual_files import ModelFiles, read_model_files
from strandline.embeddings.multilingual_vocabulary import END, START, UNKNOWN, Vocabulary

CHARACTERS = "aeiosnt  .,'-ABC09éñüß¿漢字かなカナ한글мир\u200b\u0301\u2581½ﬁ😀\t\n"


@pytest.fixture(scope="module")
def files() -> ModelFiles:
    return read_model_files()


@pytest.fixture(scope="module")
def vocabulary(files: ModelFiles) -> Vocabulary:
    return Vocabulary(files.pieces, files.scores, files.replacements)


@pytest.fixture(scope="module")
def reference(files: ModelFiles) -> Tokenizer:
    """The library's own splitting, which takes long to begin."""
    pieces = list(zip(files.pieces, files.scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(files.replacements),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


@given(st.text(CHARACTERS, max_size=80))
@example("We moved the stand-up to nine, because Ana lives in Lisbon now.")
@example("¿Qué comida no puede comer Rosario? 蕎麦アレルギーなので、そばを食べられません。")
@example("x" * 200)
def test_vocabulary_splits_text_as_the_library(
    vocabulary: Vocabulary, reference: Tokenizer, text: str
) -> None:
    ids = reference.encode(text).ids
    assert vocabulary.tokenize(text, 512) == [START, *(ids or [UNKNOWN]), END]


def test_vocabulary_tokens_are_limited(vocabulary: Vocabulary) -> None:
    assert len(vocabulary.tokenize("the " * 900, 512)) == 512
    assert vocabulary.tokenize("", 512) == [START, UNKNOWN, END]
