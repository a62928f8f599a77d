"""The similarity of two names: the share of three-letter groups that both have."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping

from strandline.graph.nodes.identity import normalise


def split_trigrams(name: str) -> frozenset[str]:
    """The groups of three characters of each word. Each word is padded with two spaces before it
    and one after it, so that its beginning weighs more."""
    words = normalise(name).split()
    padded_words = (f"  {word} " for word in words)
    return frozenset(word[i : i + 3] for word in padded_words for i in range(len(word) - 2))


def find_near_names[Key: Hashable](
    names: Mapping[Key, str], min_similarity: float
) -> Iterator[tuple[Key, Key, float]]:
    """The pairs of names that have at least this similarity, each pair once, with the similarity
    from 0 to 1: the number of groups that both have, divided by the number that either has."""
    groups = {key: split_trigrams(name) for key, name in names.items()}
    keys_by_trigram: defaultdict[str, list[Key]] = defaultdict(list)
    for key, trigrams in groups.items():
        shared = Counter(other for trigram in trigrams for other in keys_by_trigram[trigram])
        for other, count in shared.items():
            similarity = count / (len(trigrams) + len(groups[other]) - count)
            if similarity >= min_similarity:
                yield other, key, similarity
        for trigram in trigrams:
            keys_by_trigram[trigram].append(key)
