"""How alike two names are."""

import random
import string

import pytest

from strandline.graph.lists.propose_merges import find_similar_name_pairs, split_trigrams


def test_name_similarity_splits_into_trigrams() -> None:
    assert split_trigrams("Bo.") == {"  b", " bo", "bo "}
    assert split_trigrams(" BO  bo") == split_trigrams("bo")
    assert split_trigrams("...") == frozenset()


@pytest.mark.parametrize(
    ("a", "b", "similarity"),
    [
        ("Nils Berg", "Niels Berg", 8 / 13),
        ("Nils Berg", "berg NILS", 1.0),
        ("AWS", "SQL", 0.0),
        ("Ångström", "ångström!", 1.0),
    ],
)
def test_name_similarity_is_share_of_common_trigrams(a: str, b: str, similarity: float) -> None:
    near_names = list(find_similar_name_pairs({1: a, 2: b}, 0.01))
    expected = [(1, 2, pytest.approx(similarity))] if similarity else []
    assert near_names == expected


def test_name_similarity_pairs_match_full_comparison() -> None:
    rng = random.Random(3)
    names = {
        n: " ".join("".join(rng.choices(string.ascii_lowercase[:4], k=4)) for _ in range(2))
        for n in range(60)
    }
    expected = set[tuple[int, int]]()
    for a in names:
        for b in range(a + 1, 60):
            first, second = split_trigrams(names[a]), split_trigrams(names[b])
            if len(first & second) / len(first | second) >= 0.4:
                expected.add((a, b))
    assert len(expected) > 5
    assert {(a, b) for a, b, _ in find_similar_name_pairs(names, 0.4)} == expected
