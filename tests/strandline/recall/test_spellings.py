"""Words of a question that nobody said, and the spellings of them that stand in view."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from strandline.db.database import Caller
from strandline.recall import spellings, store
from strandline.recall.features import (
    EventScoreFeatures,
    QuestionWord,
    compute_answerability_features,
)
from strandline.recall.spellings import (
    choose_nearest_spellings,
    count_edits,
    list_respellable_words,
    make_spellings,
)
from strandline.recall.store_spellings import VisibleSpelling, find_visible_spellings
from tests.support import Gateway, ScratchDatabase, Tell

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
TEXTS = (
    "The separate invoice of Schwarzenegger is in the attic.",
    "José keeps bees on the roof.",
    "Frau Müller repairs clocks.",
    "Herr Mueller paints boats.",
    "The maintenance of the kiln costs a fortune.",
    "Restart restic on hetzner-box-3.",
    "Dvořák is played on Sundays.",
    "Наташа живёт в Казани.",
)


@pytest.fixture
def key(gateway: Gateway, tell: Tell) -> str:
    """A key of a memory that is not embedded: what is found is found by words."""
    new_key = gateway.key(user=ALICE)
    for text in TEXTS:
        tell(new_key, text)
    return new_key


def recall(gateway: Gateway, key: str, query: str, **more: object) -> list[Any]:
    reply = gateway.call("POST", "/api/v1/recall", {"query": query, **more}, key=key)
    assert reply.status == 200, reply.text
    return reply.body["hits"]


def matches(gateway: Gateway, key: str, query: str, **more: object) -> dict[str, list[str]]:
    """The texts that hold something of the question, with what they hold."""
    hits = recall(gateway, key, query, min_relevance=0, **more)
    return {hit["text"]: why for hit in hits if (why := [w for w in hit["why"] if w != "meaning"])}


def find_in_view(gateway: Gateway, viewer: str, typed: str, spelling: str) -> list[str]:
    """The spelling, if it stands in what a user sees."""
    access = gateway.database.connect_as(Caller("acme", (viewer,)))
    visible = find_visible_spellings(access, {typed: [spelling]}, None, None)
    return [one.spelling for one in visible]


# found -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "text", "why"),
    [
        ("where is the seperate one?", TEXTS[0], ["separ"]),
        ("attci", TEXTS[0], ["attic"]),
        ("Who owes Schwarzeneger?", TEXTS[0], ["schwarzenegg"]),
        ("Who owes Schwarzeneggre?", TEXTS[0], ["schwarzenegg"]),
        ("Who is Shwarzeneger?", None, []),
        ("Where does Jose keep bees?", TEXTS[1], ["jose", "bee", "keep"]),
        ("JOSE", TEXTS[1], ["jose"]),
        ("maintanance", TEXTS[4], ["mainten"]),
        ("Dvorak", TEXTS[6], ["dvorak"]),
        ("resticc on hetzner-box-4", TEXTS[5], ["restic"]),
        ("Где Ноташа?", TEXTS[7], ["наташа"]),
    ],
)
def test_spelling_in_view_stands_for_what_nobody_said(
    gateway: Gateway, key: str, question: str, text: str | None, why: list[str]
) -> None:
    found = matches(gateway, key, question)
    if text is None:
        assert found == {}, "two edits are searched for behind the first letters"
        return
    assert set(why) <= set(found[text]), found


def test_spelling_without_marks_finds_either(gateway: Gateway, key: str, tell: Tell) -> None:
    assert set(matches(gateway, key, "Muller")) == {TEXTS[2]}, "its own index has it"
    assert set(matches(gateway, key, "Mueller")) == {TEXTS[2], TEXTS[3]}
    assert set(matches(gateway, key, "Müller")) == {TEXTS[2]}
    assert set(matches(gateway, key, "Müeller")) == {TEXTS[2], TEXTS[3]}
    other = gateway.key(user=BOB)
    tell(other, "Jose and Mueller came.", BOB)
    for question in ("José", "Muller", "Müller"):
        assert len(matches(gateway, other, question)) == 1, question


def test_spelling_of_events_indexed_before_is_found(
    gateway: Gateway, key: str, scratch_db: ScratchDatabase
) -> None:
    """Their index lacks the words without marks."""
    scratch_db.rows(
        "update event_search w set words = event_tsvector('', e.content)"
        " from events e where e.event_id = w.event_id returning 1"
    )
    assert matches(gateway, key, "Jose") == {TEXTS[1]: ["josé"]}
    assert set(matches(gateway, key, "Muller")) == {TEXTS[2]}


def test_spelling_counts_less_than_the_word(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key(user=ALICE)
    tell(key, "The lantren swings.", session_id="a")
    tell(key, "The lantern swings.", session_id="b")
    (exact,) = matches(gateway, key, "lantren")
    assert exact == "The lantren swings.", "what stands in view is never respelled"
    first, *_ = recall(gateway, key, "lantern", explain=True)
    other, *_ = recall(gateway, key, "lantenr", explain=True)
    assert first["features"]["words"] == 1.0
    assert 0.4 < other["features"]["words"] < 0.6, "the typed word is rarer still"
    assert other["relevance"] < first["relevance"]


def test_spelling_in_view_counts_for_known() -> None:
    typed, found = QuestionWord("seper", 0), QuestionWord("separ", 2, "seper", 0.6)
    best = [EventScoreFeatures(*[0.0] * len(EventScoreFeatures._fields))]
    nothing, some, everything = (
        compute_answerability_features(best, 0.0, words, 900, 900).words_absent
        for words in ([typed], [typed, found], [QuestionWord("separ", 2)])
    )
    assert (nothing, everything) == (1, 0)
    assert some == pytest.approx(0.4)


# not found ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        "hetzner-box-4",  # an identifier with other digits is another one
        "box4 attix9",
        "attix-9",
        "bets",  # bees, but an everyday word
        "Tose",  # the first letter of a short word
        "bea",  # short
        "лампа",
        "Is Rooff there?",  # a name
        "Could Attick be there?",
    ],
)
def test_spelling_is_not_guessed(gateway: Gateway, key: str, question: str) -> None:
    found = matches(gateway, key, question)
    assert not {"bee", "jose", "josé", "attic", "roof"} & {
        word for why in found.values() for word in why
    }
    assert len(found) == (question == "hetzner-box-4"), found


def test_spelling_costs_nothing_where_all_words_match(
    gateway: Gateway, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[str]()
    find = spellings.store_spellings.find_visible_spellings

    def spy(*args: Any) -> Sequence[VisibleSpelling]:
        calls.append("")
        return find(*args)

    monkeypatch.setattr(spellings.store_spellings, "find_visible_spellings", spy)
    for question in ("the separate invoice", "Schwarzenegger", "Where does José keep bees?"):
        assert matches(gateway, key, question)
        assert calls == [], question
    matches(gateway, key, "What instrument is played on Sundays?")
    assert calls == [], "an everyday word is no slip"
    matches(gateway, key, "Schwarzeneger")
    assert len(calls) == 1


def test_spelling_is_of_what_the_reader_sees(gateway: Gateway, key: str, tell: Tell) -> None:
    tell(key, "Our secret is the zephyrine.", ALICE, BOB)
    tell(gateway.key("globex"), "Ours is the zephyrium.", BOB)
    bob, alone = gateway.key(user=BOB), gateway.key(user="user:carol")
    tell(alone, "I know nothing of it.", "user:carol")
    assert matches(gateway, bob, "zephyrina") == {"Our secret is the zephyrine.": ["zephyrin"]}
    assert matches(gateway, alone, "zephyrine") == {}
    assert matches(gateway, bob, "Schwarzeneger") == {}, "Alice said so, and not to Bob"
    assert matches(gateway, bob, "Schwarzeneggre") == {}
    assert find_in_view(gateway, BOB, "schwarzeneger", "schwarzenegger") == []
    assert find_in_view(gateway, ALICE, "schwarzeneger", "schwarzenegger") == ["schwarzenegger"]


def test_spelling_of_an_erased_event_is_gone(
    gateway: Gateway, tell: Tell, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(user=ALICE)
    receipt = tell(key, "Our secret is the zephyrine.")
    tell(key, "Nothing of it.")
    marked = "update events set erased_at = now() where event_id = %s returning 1"
    assert matches(gateway, key, "zephyrina")
    scratch_db.rows(marked, receipt["event_id"])
    for question in ("zephyrina", "zephyrrina", "zephyrinneee"):
        assert matches(gateway, key, question) == {}, "marked, and its words are still indexed"
    assert find_in_view(gateway, ALICE, "zephyrina", "zephyrine") == []


def test_spelling_keeps_filters_and_counts(gateway: Gateway, key: str, tell: Tell) -> None:
    tell(key, "Another seperator.", session_id="t")
    access = gateway.database.connect_as(Caller("acme", (ALICE,)))
    result = store.search_candidate_events(
        access,
        question="the attic",
        vector=None,
        space="none/1",
        filters={},
        now=datetime.now(UTC),
        spellings=["jose", "roof"],
    )
    assert result.rows[0].words == ["attic", "jose", "roof"]
    assert result.rows[0].document_counts == [1, 1, 1]
    assert matches(gateway, key, "attci", session_id="t") == {}
    assert set(matches(gateway, key, "attci")) == {TEXTS[0]}


# the words ---------------------------------------------------------------------------------------


def test_spellings_are_all_at_one_edit() -> None:
    for word in ("jose", "müller", "straße", "наташа", "שלום"):
        edits = make_spellings(word)
        assert word not in edits
        assert len(edits) < 1_500
        for spelling, count in edits.items():
            unmarked = "müller".replace("ü", "u") if word == "müller" else word.replace("ß", "ss")
            assert count == 0 or 1 in (count_edits(word, spelling), count_edits(unmarked, spelling))
    edits = make_spellings("jose")
    assert [edits[one] for one in ("josé", "jsoe", "joes", "jos", "joise", "rose")] == [0, *[1] * 5]


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ("occurance", "occurrence", 2),
        ("ab", "ba", 1),
        ("abcd", "badc", 2),
        ("kiln", "kiln", 0),
        ("kiln", "boat", 3),
        ("a", "abcdefgh", 3),
        ("ca", "abc", 3),
    ],
)
def test_spelling_edits_are_counted(one: str, other: str, count: int) -> None:
    assert count_edits(one, other) == count_edits(other, one) == count


def test_spelling_words_are_few_and_no_everyday_ones() -> None:
    question = "Which restarants, deploys2 and kiln_a do Schwarzeneger's enviroment accomodate?"
    words = list_respellable_words(question, None)
    assert words == ["schwarzeneger", "accomodate", "enviroment"]
    assert list_respellable_words(question, ["enviro"]) == ["enviroment"]
    assert list_respellable_words(question, []) == []
    contracted = "Why couldn't the kilnn's door, which mustn\u2019t open, be zhut?"
    assert list_respellable_words(contracted, None) == ["kilnn", "zhut"]
    assert list_respellable_words("部署流程 テスト環境", None) == []


def test_spelling_nearest_is_chosen() -> None:
    def one(spelling: str, pieces: int) -> VisibleSpelling:
        return VisibleSpelling("jsoe", "jsoe", spelling, spelling, pieces)

    edits = {"jsoe": {"josé": 0, "jose": 1, "jsob": 1, "jso": 1, "soe": 1}}
    visible = [one("jose", 2), one("jsob", 9), one("jso", 1), one("soe", 99), one("what", 500)]
    best = choose_nearest_spellings(visible, edits)
    assert [(found.word, found.certainty) for found in best] == [("jsob", 0.3), ("jose", 0.3)]
    (marked,) = choose_nearest_spellings([*visible, one("josé", 1)], edits)
    assert (marked.word, marked.stands_for, marked.certainty) == ("josé", "jsoe", 0.9)
