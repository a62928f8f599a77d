"""What a text costs the heuristic model: about as much as it is long, whatever it holds; and the
rules that keep it so give what comparing all with all gave."""

# pyright: reportPrivateUsage=false

import hashlib
import random
import re
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from strandline.languages import get_stemmer
from strandline.llm.heuristic import aliases, codes, digest, name_spans, topic_continuation, words
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.types import PromptEvent
from tests.bench import conversations, talks

HEURISTIC = HeuristicModel()
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LETTERS = str.maketrans("0123456789", "ghijklmnop")


def say(*texts: str) -> list[PromptEvent]:
    results: list[PromptEvent] = []
    for place, text in enumerate(texts):
        role = "agent" if place % 2 else "user"
        at = NOON + timedelta(seconds=40 * place)
        results.append(PromptEvent(place, f"{role}:mara", role, "message", text, at))
    return results


def unheard(count: int, head: str = "qz") -> list[str]:
    """Words that no list has and no other has said."""
    return [head + format(7919 * place, "x").translate(LETTERS) for place in range(count)]


class CountingList(Sequence[str]):
    """A list that counts how often one of its members is looked at."""

    def __init__(self, members: Sequence[str]) -> None:
        self._members = members
        self.looks = 0

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, place: int) -> str:  # type: ignore[override]
        self.looks += 1
        return self._members[place]


def test_heuristic_cost_of_word_lookup_is_logarithmic(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = CountingList(words._sorted_words())
    monkeypatch.setattr(words, "_sorted_words", lambda: listing)
    words._words_with_stem.cache_clear()
    for word in unheard(200, "zz"):
        assert words.get_stem_frequency_band(word) is None
    assert listing.looks < 200 * 2 * 25, "a few halvings of each of two beginnings"


def test_heuristic_cost_of_name_comparison_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    is_of = aliases._is_short_form

    def count(*args: object, **options: object) -> bool:
        nonlocal calls
        calls += 1
        return is_of(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(aliases, "_is_short_form", count)
    names = [
        f"{one.title()} {two.title()}"
        for one, two in zip(unheard(2000), unheard(2000, "vo"), strict=True)
    ]
    names += unheard(500)
    assert len(aliases.find_aliases(names)) == 500  # each is the first word of one
    assert calls < 2 * len(names)


PIECES = (
    *("a", "ab", "abc", "abcd", "abcde", "abcs", "ab's", "J.", "j.", "Dr.", "dr", "St", "mrs", "&"),
    *("The", "Abc", "ABC", "Abcd", "ábc", "ÁBC", "abcde", "x/abc", "Loch", "Street", "nunos"),
    *("nuno", "Nuno", "Jan", "Jana", "Janas", "ﷺ", "s", "velmos", "velmo"),
)


def test_heuristic_cost_saving_aliases_match_full_comparison() -> None:
    dice = random.Random(5)
    several = alone = 0
    for _ in range(5000):
        names = {
            " ".join(dice.choices(PIECES, k=dice.choice((1, 1, 2, 2, 3)))): None
            for _ in range(dice.randrange(1, 10))
        }
        near_names = aliases.find_aliases(names)
        assert list(near_names.items()) == list(_all_with_all(names))
        several += sum(whole is None for whole in near_names.values())
        alone += sum(whole is not None for whole in near_names.values())
    assert several > 500
    assert alone > 1000


def _all_with_all(names: Collection[str]) -> Iterator[tuple[str, str | None]]:
    folds = {name: aliases._remove_case_and_diacritics(name) for name in names}

    def is_of(short: str, name: str) -> bool:
        low, like = folds[short], folds[name]
        if low == like:
            return aliases._make_spelling_sort_key(name) > aliases._make_spelling_sort_key(short)
        return aliases._is_short_form(low, like, is_lower_case=short.islower())

    results = {
        short: [name for name in names if name != short and is_of(short, name)] for short in names
    }
    for short, wholes in results.items():
        if wholes:
            of = [name for name in wholes if not results[name]] or wholes
            best = {folds[name]: name for name in sorted(of, key=aliases._make_spelling_sort_key)}
            last = [
                name
                for low, name in best.items()
                if not any(low != one and low in one for one in best)
            ]
            yield short, last[0] if len(last) == 1 else None


HOSTILE = {
    "unheard words": " ".join(unheard(1000)),
    "names": ". ".join(word.title() for word in unheard(1000)),
    "names, numbered": ", ".join(f"{word.title()} 60" for word in unheard(300)),
    "one name, numbered": "Velmo 60, " * 500,
    "order numbers": " ".join(f"AB-{place}" for place in range(1000)),
    "a register's number that ends as none": f"A_{'1' * 3990}-x",
    "a number that ends as none": f"A{'1' * 3990}-x",
    "one letter": "a" * 8000,
    "one word": "abcd" * 2000,
    "a long word after a listed one's ending": f"{'bcdfg' * 1500}in",
    "marks": f"the one and the other of them{'!' * 7000}x",
    "lines and marks": "the one and the other of them" + "!\n" * 10 + "!" * 7000 + "x",
    "blanks": f"a{' ' * 7000}b",
    "hyphens": "a-" * 4000,
    "paths": "aa.bb/" * 1300,
    "quotes": "“The Salt of the “The " * 300,
    "pairs of letters": "".join(chr(0x4E00 + 31 * n % 20000) for n in range(8000)),
    "small names": "mrs " + " ".join(unheard(1000, "vo")),
}
SECONDS = 20.0
"""Of the processor for ten such events, which take well under one: what is quadratic takes many
times as long as this, and what is cubic an hour."""


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_heuristic_cost_grows_with_text_length(text: str) -> None:
    events = say(*([text] * 9), text + " and so on")
    started = time.process_time()
    for verb in (HEURISTIC.summarise, HEURISTIC.entities, digest.choose_topic_phrase):
        verb(events)
        assert time.process_time() - started < SECONDS
    HEURISTIC.continues(events[:6], events[6], events[7:])
    assert time.process_time() - started < SECONDS


def test_heuristic_cost_long_word_is_not_cached() -> None:
    before = words._stem_cached.cache_info().currsize
    for place in range(50):
        words.get_stem_frequency_band(f"{'q' * 500}{place}")
        words.is_ordinary(f"{'q' * 500}ing{'q' * place}s")
    assert words._stem_cached.cache_info().currsize == before


def test_heuristic_cost_open_text_is_stemmed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    durations: list[str] = []

    def stems(text: str) -> Iterator[str]:
        durations.append(text)
        return iter(text.split())

    monkeypatch.setattr(topic_continuation, "iter_stems", stems)
    topic_continuation._stem_text.cache_clear()
    events = say(*(f"event no {place}" for place in range(500)))
    for place in range(490, 496):
        HEURISTIC.continues(events[:place], events[place], events[place + 1 : place + 4])
    topic_continuation._stem_text.cache_clear()
    assert len(durations) == len({*durations}) == 499


def test_heuristic_cost_saving_patterns_match_slow_forms() -> None:
    slow = re.compile(r"[A-Z]+-?\d{2,}\w*|[A-Z]+[/_]\w*\d{2,}\w*")
    marks = re.compile(r"[.,:;!?()\"“”…\n—–]+(?:\s|$)")  # noqa: RUF001
    dice = random.Random(9)
    matched = 0
    for _ in range(20000):
        word = "".join(dice.choices("AB12_/-a", k=dice.randrange(1, 10)))
        if slow.fullmatch(word):
            matched += 1
            assert codes._CODE.fullmatch(word), word
        text = "".join(dice.choices("a.!\n ,—", k=dice.randrange(12)))
        assert digest._MARKS.split(text) == marks.split(text)
    assert matched > 100


def test_heuristic_cost_numbered_names_are_counted_once() -> None:
    name_spans._count_numbered_names.cache_clear()
    sentence = [part for _ in range(50) for part in ("Velmo", "60", ",")]
    assert len(list(name_spans.find_capitalized_runs(sentence))) == 50
    assert name_spans._count_numbered_names.cache_info().misses == 1


def test_heuristic_answers_to_conversations_are_frozen() -> None:
    """Chains are told from it: a change of this digest changes what is folded from now on."""
    hasher = hashlib.sha256()
    for path in (talks.DEMO, *talks.UNSEEN_SET):
        events = conversations.read(path).events
        turns = say(*("" if "mime_type" in event else event["content"] for event in events))
        for start in range(0, len(turns), 20):
            run = turns[start : start + 20]
            answers = (HEURISTIC.summarise(run), HEURISTIC.topic(run), HEURISTIC.entities(run))
            hasher.update("".join(answer.model_dump_json() for answer in answers).encode())
            for place in range(1, len(run)):
                later = run[place + 1 : place + 4]
                hasher.update(
                    repr(
                        tuple(topic_continuation.compute_cues(run[:place], run[place], later))
                    ).encode()
                )
    assert hasher.hexdigest() == FROZEN_DIGEST


FROZEN_DIGEST = "00405db965045207623da1d73f5664716c11e5bf1c6a020dac26e72968f61e2e"


def test_heuristic_stemmer_is_thread_safe() -> None:
    """A stemmer keeps the word that it is at in itself; and what it gives is remembered."""
    dice = random.Random(1)
    spelt = ["".join(dice.choices("abcdeilnrst", k=9)) + "ing" for _ in range(4000)]
    stemmer = get_stemmer("en")
    stems = {word: stemmer.stemWord(word) for word in spelt}
    words._stem_cached.cache_clear()  # pyright: ignore[reportPrivateUsage]
    wrong: list[str] = []

    def read(seed: int) -> None:
        mine = random.Random(seed).sample(spelt, len(spelt))
        wrong.extend(word for word in mine if words.stem_english_word(word) != stems[word])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    assert [word for word in spelt if words.stem_english_word(word) != stems[word]] == []
