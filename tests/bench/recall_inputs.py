"""What the benches of recall are run with: corpora that do not ship, and vectors kept in a file."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from strandline.embeddings.embedder import Embedder
from strandline.embeddings.local import LocalEmbedder
from tests.bench import beam, recall_corpora
from tests.bench.cost import RememberingEmbedder
from tests.bench.recall_corpora import Corpus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The corpora's places, and where vectors are kept."""
    parser.add_argument("--locomo", type=Path, help="LoCoMo's file, which is not shipped")
    parser.add_argument("--talks", type=Path, help="a folder of further sets")
    parser.add_argument("--beam", type=Path, help="a clone of BEAM, which is not shipped")
    parser.add_argument("--vectors", type=Path, help="a file that keeps vectors between runs")


def load_corpora(arguments: argparse.Namespace) -> Sequence[Corpus]:
    """Every corpus that ships or is given. Ends the program if one cannot be read."""
    try:
        corpora = recall_corpora.load(arguments.locomo, arguments.talks)
        return corpora + (beam.load(arguments.beam) if arguments.beam else [])
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"a corpus cannot be read: {error}")


def make_embedder(arguments: argparse.Namespace) -> Embedder:
    """The model that ships."""
    return RememberingEmbedder(LocalEmbedder(), arguments.vectors)
