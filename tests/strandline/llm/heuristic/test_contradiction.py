"""The deterministic test of a contradiction: what it claims holds, what it misses it leaves."""

import pytest

from strandline.llm.heuristic.contradiction import explain_contradiction
from strandline.llm.heuristic.model import HeuristicModel

DENIED, NUMBERS, VALUES = (
    "one denies what the other says",
    "they give different numbers or times",
    "they give different values to what has one at a time",
)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("Ada lives in Oslo", "Ada lives in Bergen", VALUES),
        ("Ada lives in Oslo", "Ada does not live in Oslo.", DENIED),
        ("Ada lives in Oslo", "Ada doesn't live in Oslo any longer", DENIED),
        ("Ada still lives in Oslo", "Ada no longer lives in Oslo", DENIED),
        ("Ada can swim", "Ada can't swim", DENIED),
        ("Ada can swim", "Ada cannot swim", DENIED),
        ("Ada has visited Rome", "Ada has never visited Rome", DENIED),
        ("The ferry leaves at nine", "The ferry leaves at ten", NUMBERS),
        ("The mast is 12 m tall", "The mast is 14 m tall", NUMBERS),
        ("The review is on Monday", "The review is on Tuesday", NUMBERS),
        ("Nils Berg's favourite drink is tea", "Nils Berg's favourite drink is coffee", VALUES),
        ("Mara works at Northwind", "Mara works for Contoso", None),
        ("Mara works at Northwind", "Mara works at Contoso", VALUES),
        ("Mara reports to Nils", "Mara reports to Ada", VALUES),
        ("The default branch is main", "The default branch is trunk", VALUES),
    ],
)
def test_contradiction_is_explained(first: str, second: str, reason: str | None) -> None:
    assert explain_contradiction(first, second) == reason
    assert explain_contradiction(second, first) == reason
    model = HeuristicModel()
    assert model.contradicts(first, second).contradicts == (reason is not None)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Ada lives in Oslo", "ada lives in oslo."),
        ("Ada lives in Oslo", "Nils lives in Oslo"),
        ("Ada likes tea", "Ada likes coffee"),
        ("Ada speaks French", "Ada speaks German"),
        ("Ada has a dog", "Ada has a cat"),
        ("Ada does not like tea", "Ada does not like coffee"),
        ("Ada lives in Oslo", "Ada lives in Oslo with Nils"),
        ("Ada never swims", "Ada rows in June"),
        ("Ada uses Postgres", "Ada uses Postgres and Redis"),
        ("", "Ada lives in Oslo"),
        ("x " * 500, "x " * 500 + "y"),
    ],
)
def test_contradiction_spares_compatible_statements(first: str, second: str) -> None:
    assert explain_contradiction(first, second) is None
    assert explain_contradiction(second, first) is None
