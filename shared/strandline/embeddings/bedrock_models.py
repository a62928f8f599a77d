"""The embedding models of Amazon Bedrock that can be set, and their limits. Pure data: settings are
checked without a library of AWS.

From AWS's user guide of Bedrock, "Amazon Titan Text Embeddings models", "Cohere Embed v3" and
"Cohere Embed v4".
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from strandline.errors import Misconfigured


class ModelFamily(NamedTuple):
    """What models of one request format have in common."""

    form: Literal["titan", "cohere_v3", "cohere_v4"]
    dimensions: tuple[int, ...]
    """The lengths of vectors that it offers."""
    max_texts: int
    """Texts of one request."""
    max_characters: int | None
    """A longer text is refused, whether or not the model truncates by tokens."""
    least_characters: int | None = None
    """A model that refuses a text of too many tokens, and does not truncate it, accepts one of so
    many characters, at one token each."""


class BedrockModel(NamedTuple):
    """A model that can be set."""

    name: str
    """Its own name, whichever way it is called: `cohere.embed-v4:0`."""
    family: ModelFamily


_COHERE_V3 = ModelFamily("cohere_v3", (1024,), max_texts=96, max_characters=2048)
FAMILIES: Mapping[str, ModelFamily] = {
    "amazon.titan-embed-text-v2:0": ModelFamily(
        "titan", (256, 512, 1024), max_texts=1, max_characters=50_000, least_characters=8192
    ),
    "cohere.embed-english-v3": _COHERE_V3,
    "cohere.embed-multilingual-v3": _COHERE_V3,
    "cohere.embed-v4:0": ModelFamily(
        "cohere_v4", (256, 512, 1024, 1536), max_texts=96, max_characters=None
    ),
}
"""By the model's own name."""

_MODEL_ID = re.compile(
    r"(?:arn:aws[a-z-]*:bedrock:[a-z0-9-]*:[0-9]*:(?:foundation-model|inference-profile)/)?"
    r"(?:[a-z-]+\.)?(?P<name>(?:amazon|cohere)\.[a-z0-9:-]+)"
)
"""A model's name, an inference profile over several Regions (`eu.…`), or the ARN of either."""


def require_bedrock_model(model_id: str, dimensions: int) -> BedrockModel:
    """The model that a setting names. Raises Misconfigured for a model of another format, and for a
    dimension that the model does not offer."""
    match = _MODEL_ID.fullmatch(model_id)
    name = match["name"] if match else ""
    family = FAMILIES.get(name)
    if family is None:
        raise Misconfigured(
            f"STRANDLINE_EMBEDDING_MODEL={model_id} is none of the embedding models of Bedrock "
            f"that can be used. Set {_join([*FAMILIES])}, or an inference profile of one of them "
            "over several Regions, such as eu.cohere.embed-v4:0."
        )
    if dimensions not in family.dimensions:
        raise Misconfigured(
            f"STRANDLINE_EMBEDDING_DIMENSIONS={dimensions} is no dimension of {name}: "
            f"set {_join([*map(str, family.dimensions)])}."
        )
    return BedrockModel(name, family)


def _join(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
