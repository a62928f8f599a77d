"""Which parts of a long text match a question, and what hits and contexts show of them."""

from typing import Any
from uuid import UUID

import pytest

from strandline.log.passage_spans import split_into_passages
from strandline.recall import passages as passages_module
from strandline.recall.features import QuestionWord
from strandline.recall.passages import Passages, WordMatcher
from strandline.recall.search import SearchResult
from tests.support import Gateway, user_message

ALICE = "user:alice"
ANSWER = "The spare key of the boathouse hangs behind the blue heron."
QUESTION = "Where does the spare key of the boathouse hang?"
STEMS = ("boathous", "hang", "key", "spare")
WEATHER = " ".join(f"Day {n} was cloudy, with a light wind from the west." for n in range(40))
DEEP = f"Notes of the summer.\n{WEATHER} {ANSWER} {WEATHER}"


def find(text: str, *stems: str) -> Passages:
    words = [QuestionWord(stem, 2) for stem in stems or STEMS]
    return Passages(text, WordMatcher(words))


@pytest.mark.parametrize("max_bytes", [120, 200, 400, 1000])
def test_passages_excerpt_shows_the_deep_match(max_bytes: int) -> None:
    excerpt = find(DEEP).excerpt(max_bytes)
    assert ANSWER in excerpt
    assert len(excerpt.encode()) <= max_bytes
    assert excerpt.endswith(" …")


def test_passages_excerpt_shows_what_stands_beside_the_match() -> None:
    text = f"{WEATHER} We looked for it. {ANSWER} Please put it back. {WEATHER}"
    excerpt = find(text).excerpt(200)
    assert f"We looked for it. {ANSWER} Please put it back." in excerpt
    assert "Day 5 " not in excerpt


def test_passages_excerpt_of_log_is_its_matching_lines() -> None:
    rows = [f"2026-05-0{1 + n // 24} {n % 24:02}:00 pump ok, level {n} mm" for n in range(90)]
    rows[61] = "2026-05-03 13:00 pump FAILED: bearing seized at 96 C"
    shown = find("\n".join(rows), "bear", "fail", "pump").excerpt(220).strip("… ").splitlines()
    assert shown in (rows[59:63], rows[60:64])


def test_passages_excerpt_joins_several_matches_in_order() -> None:
    text = f"A key is spare. {WEATHER} The boathouse is green. {WEATHER}"
    excerpt = find(text).excerpt(150)
    first, second = excerpt.index("A key is spare."), excerpt.index("The boathouse is green.")
    assert first < second
    assert " … " in excerpt[first:second]


@pytest.mark.parametrize(
    "sentence",
    [
        "None of the following was approved: a jetty for 120,000 kroner, a sauna on the raft.",
        "Status page: outage in Dublin from 21:40; Frankfurt was not affected.",
        "What Dr. Berg wrote of the jetty is withdrawn.",
    ],
)
def test_passages_excerpt_keeps_what_leads_on_to_the_match(sentence: str) -> None:
    """Without it the text says the opposite, or nothing."""
    text = f"{WEATHER} {sentence} {WEATHER}"
    for stem in ("jetti", "frankfurt"):
        excerpt = find(text, stem).excerpt(150)
        assert sentence in excerpt or not find(text, stem).has_match


def test_passages_best_range_keeps_what_leads_on_to_the_match() -> None:
    text = f"{WEATHER} None of the following was approved: a jetty for 120,000 kroner. {WEATHER}"
    start, end = find(text, "jetti").find_best(80) or (0, 0)
    assert text[start:end].startswith("None of the following was approved: a jetty")


def test_passages_excerpt_shows_match_whose_lead_has_no_room() -> None:
    text = f"{WEATHER} {'All of this is true ' * 12}of it: {'the jetty is closed ' * 6}. {WEATHER}"
    assert find(text, "jetti").excerpt(140).startswith("… the jetty is closed")
    text = f"{WEATHER}\nPumps:\nThe jetty is closed. {WEATHER}"
    assert "Pumps" not in find(text, "jetti").excerpt(40)


def test_passages_without_match_show_nothing() -> None:
    passages = find(WEATHER)
    assert (passages.excerpt(400), passages.find_best(400)) == ("", None)
    assert find("", "key").excerpt(400) == ""
    assert Passages(DEEP, WordMatcher([])).excerpt(400) == ""


def test_passages_excerpt_cuts_a_match_longer_than_the_room() -> None:
    text = f"{WEATHER}\nboathouse {'wave ' * 50}"
    excerpt = find(text).excerpt(60)
    assert "boathouse wave" in excerpt
    assert len(excerpt.encode()) <= 60


def test_passages_best_range_holds_the_match() -> None:
    first, last = find(DEEP).find_best(300) or (0, 0)
    assert ANSWER in DEEP[first:last]
    assert 200 < last - first <= 300


def test_passages_best_range_prefers_all_words_together() -> None:
    text = f"A key, a key, a key. {WEATHER} {ANSWER} {WEATHER} Keys hang around."
    first, last = find(text).find_best(100) or (0, 0)
    assert text[first:last] == ANSWER


@pytest.mark.parametrize(
    ("stem", "text", "is_found"),
    [
        ("deliveri", "Two deliveries came.", True),
        ("deliveri", "One Delivery came.", True),
        ("organ", "An organ plays.", True),
        ("organ", "The organization plays.", False),
        ("limit", "These are its limitations.", True),
        ("key", "A monkey plays.", False),
        ("seat", "see test_seat_row", True),
        ("港口", "我们在港口见面。", True),
        ("17", "room 0.17 is closed", True),
        ("17", "room 170 is closed", False),
        ("c++", "a c++ compiler", True),
    ],
)
def test_passages_words_are_found_by_their_stems(stem: str, text: str, is_found: bool) -> None:
    assert bool(WordMatcher([QuestionWord(stem, 1)]).find(text)) is is_found


def test_passages_rare_words_count_more() -> None:
    text = f"The keel is long. {WEATHER} The heron is blue. {WEATHER}"
    common, rare = QuestionWord("keel", 400), QuestionWord("heron", 1)
    excerpt = Passages(text, WordMatcher([common, rare])).excerpt(40)
    assert "heron" in excerpt
    assert "keel" not in excerpt


def test_passages_of_largest_text_take_little_time() -> None:
    """A quadratic search would not end within the test's time."""
    text = f"{'mast sail key ' * 20_000}. {ANSWER}"
    assert find(text).excerpt(1000)
    assert find(text).find_best(600)


# through the API ----------------------------------------------------------------------------------


@pytest.fixture
def key(gateway: Gateway) -> str:
    key = gateway.key(user=ALICE)
    for text in (DEEP, "The boathouse is shut on Mondays.", "Lunch was good."):
        reply = gateway.call("POST", "/api/v1/events", user_message(text, ALICE), key=key)
        assert reply.status == 201, reply.text
    gateway.sweep()
    return key


def recall(gateway: Gateway, key: str, **fields: Any) -> Any:
    reply = gateway.call("POST", "/api/v1/recall", {"query": QUESTION, **fields}, key=key)
    assert reply.status == 200, reply.text
    return reply.body


def test_passages_of_hit_are_named_by_piece(gateway: Gateway, key: str) -> None:
    hits = recall(gateway, key, min_relevance=0)["hits"]
    deep, short = (next(hit for hit in hits if part in hit["text"]) for part in (ANSWER, "shut"))
    assert deep["text"] == DEEP
    piece = DEEP[deep["piece"]["start_char"] : deep["piece"]["end_char"]]
    assert ANSWER in piece
    assert len(piece) <= 600
    assert short["piece"] is None


def test_passages_of_hit_stand_for_text_too_long_for_budget(gateway: Gateway, key: str) -> None:
    answer = recall(gateway, key, min_relevance=0, max_tokens=200)
    texts = [hit["text"] for hit in answer["hits"]]
    deep = next(text for text in texts if ANSWER in text)
    assert (deep[0], deep[-1]) == ("…", "…")
    assert deep[1:-1] in DEEP
    assert sum(-(-len(text.encode()) // 4) for text in texts) <= 200
    assert answer["degraded"] == ["cut_by_budget"]
    assert recall(gateway, key, min_relevance=0, max_tokens=2000)["degraded"] == []


def test_passages_of_context_show_the_deep_answer(gateway: Gateway, key: str) -> None:
    body = {"query": QUESTION, "budget": 400}
    answer = gateway.call("POST", "/api/v1/context", body, key=key).body
    assert ANSWER in answer["text"]
    assert answer["tokens"] <= 400
    assert answer["cut"]["shortened"] == 1


def test_passages_of_context_without_match_are_the_beginning(
    gateway: Gateway, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: a matcher that finds nothing, and no cosines, show the first bytes."""

    def find_nothing(matcher: WordMatcher, text: str) -> list[tuple[int, int]]:
        return []

    def make_passages_by_words(search: SearchResult, event_id: UUID, text: str) -> Passages:
        return Passages(text, search.matcher)

    monkeypatch.setattr(passages_module.WordMatcher, "find", find_nothing)
    body = {"query": QUESTION, "budget": 400}
    answer = gateway.call("POST", "/api/v1/context", body, key=key).body
    assert ANSWER in answer["text"]  # by its meaning
    monkeypatch.setattr(SearchResult, "make_passages", make_passages_by_words)
    answer = gateway.call("POST", "/api/v1/context", body, key=key).body
    assert ANSWER not in answer["text"]
    assert "Notes of the summer." in answer["text"]


def test_passages_by_meaning_are_shown_without_a_common_word() -> None:
    """The nearest passage stands for a word of its own, and a word in another one for its own."""
    spans = split_into_passages(DEEP)
    nearest = next(n for n, (start, end) in enumerate(spans) if ANSWER in DEEP[start:end])
    cosines = [0.5 if n == nearest else 0.1 for n in range(len(spans))]
    passages = Passages(DEEP, WordMatcher([]), cosines)
    start, end = spans[nearest]
    assert DEEP[start:end] in passages.excerpt(400)
    first, last = passages.find_best(400) or (0, 0)
    assert ANSWER in DEEP[first:last]
    assert Passages(DEEP, WordMatcher([]), [0.3] * len(spans)).excerpt(400) == ""
    assert Passages(DEEP, WordMatcher([]), [0.3]).excerpt(400) == ""
