"""The passages of a long text that hold a question's words: what is shown of a text that is too
long to be shown whole."""

import itertools
import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, pstdev

from strandline.log.passage_spans import (
    MAX_SPLIT_CHARS,
    split_into_passages,
    split_into_segments,
)
from strandline.recall.features import QuestionWord

_NEIGHBOUR_SHARE = 0.4
"""How much of the better neighbour's score counts for a segment: what answers a question often
stands beside its words."""
_MIN_STEM = 3
_MAX_ENDING = 6
"""The maximum characters that a word is longer than its stem: `organ` is not `organization`."""
_MEANING_SHARE = 0.25
"""How much a passage counts for each deviation that it is nearer to the question than the others of
its text, beside the segment with the most words."""
_GAP = " … "
_LEADING_ON = re.compile(
    r"(?:[:;]|\b(?:Dr|Mr|Mrs|Ms|Prof|St|Nr|No|vs|ca|bzw|e\.g|i\.e|z\.B|d\.h)\.)$"
)
"""The end of what means nothing, or something else, without what follows on its line."""
_NOTHING = re.compile(r"(?!)")
_LEAD_CHARS = 100
"""What is longer says something by itself."""


class WordMatcher:
    """Finds a question's words in texts, by their stems as the index has them."""

    def __init__(self, words: Sequence[QuestionWord]) -> None:
        """`words` in the index's form. A word that many events hold tells less."""
        self.weights = [word.compute_inverse_frequency(0) for word in words]
        # Where one stem begins another, the longer one is found.
        in_order = sorted(range(len(words)), key=lambda n: (-len(words[n].text), n))
        forms = [f"(?P<w{n}>{_make_form(words[n].text)})" for n in in_order if words[n].text]
        self._pattern = re.compile("|".join(forms), re.IGNORECASE) if forms else None
        self._stems = [word.text for word in words]

    @cached_property
    def _own_forms(self) -> list[tuple[str, re.Pattern[str]]]:
        """What each word's forms begin with, and their pattern."""
        return [
            (_cut_stem(stem), re.compile(_make_form(stem), re.IGNORECASE) if stem else _NOTHING)
            for stem in self._stems
        ]

    def weigh(self, text: str) -> float:
        """The weight of the words that a text holds, however often: faster than to find them."""
        lowercase = text.lower()
        return sum(
            weight
            for weight, (start, form) in zip(self.weights, self._own_forms, strict=True)
            if start in lowercase and form.search(text)
        )

    def find(self, text: str) -> list[tuple[int, int]]:
        """The place of each of the words in a text, and the word's number."""
        if self._pattern is None:
            return []
        places = ((match.start(), match.lastgroup) for match in self._pattern.finditer(text))
        return [(place, int(group[1:])) for place, group in places if group]


def _cut_stem(stem: str) -> str:
    """What all words with this stem begin with: an English stem may end in `i` where the word has a
    `y`."""
    return stem[:-1] if len(stem) > _MIN_STEM and stem.endswith("i") else stem


def _make_form(stem: str) -> str:
    """The pattern of the words that have this stem. Scripts without spaces have no bounds of
    words."""
    if not stem[0].isascii() and len(stem) <= _MIN_STEM:
        return re.escape(stem)
    base = _cut_stem(stem)
    ending = rf"[^\W_]{{0,{_MAX_ENDING}}}" if len(base) >= _MIN_STEM and base.isalpha() else ""
    return rf"(?<![^\W_]){re.escape(base)}{ending}(?![^\W_])"


@dataclass(frozen=True)
class Passages:
    """A text, and which of its parts match a question."""

    text: str
    matcher: WordMatcher
    cosines: Sequence[float] = ()
    """The question's cosines with the passages that have vectors, in order."""

    @cached_property
    def _segments(self) -> list[tuple[int, int]]:
        """The sentences and lines, as ranges of characters."""
        return split_into_segments(self.text)

    def _find_lead(self, n: int) -> int:
        """The first of the segments that lead on to this one, as "None of these was approved:" does
        on its line; the segment itself where none does."""
        while n > 0:
            (start, end), (following, _) = self._segments[n - 1 : n + 1]
            is_lead = end - start <= _LEAD_CHARS and "\n" not in self.text[end:following]
            if not is_lead or not _LEADING_ON.search(self.text, start, end):
                break
            n -= 1
        return n

    @cached_property
    def _words(self) -> list[dict[int, float]]:
        """The question's words that each segment holds, with their weights. A word tells more, the
        fewer segments hold it. What a passage means counts like a word of its own, with a negative
        number: the more, the nearer it is to the question beside the text's others."""
        starts = [start for start, _ in self._segments]
        words: list[dict[int, float]] = [{} for _ in starts]
        for place, word in self.matcher.find(self.text[:MAX_SPLIT_CHARS]):
            words[max(0, bisect_right(starts, place) - 1)][word] = self.matcher.weights[word]
        counts = Counter(itertools.chain.from_iterable(words))
        rarity = {word: math.log(1 + len(words) / (1 + count)) for word, count in counts.items()}
        weights_by_segment = [
            {word: word_weights[word] * rarity[word] for word in sorted(word_weights)}
            for word_weights in words
        ]
        best = max((sum(own.values()) for own in weights_by_segment), default=0.0)
        for number, (first, last, nearness) in enumerate(self._list_near_passages(), 1):
            for n in range(first, last):
                weights_by_segment[n][-number] = _MEANING_SHARE * nearness * (best or 1.0)
        return weights_by_segment

    def _list_near_passages(self) -> Iterator[tuple[int, int, float]]:
        """The passages nearer to the question than the text's passages are on average, as ranges of
        segments, and by how many deviations they are."""
        if len(self.cosines) < 2:
            return
        mean, deviation = fmean(self.cosines), pstdev(self.cosines)
        starts = [start for start, _ in self._segments]
        for (start, end), cosine in zip(split_into_passages(self.text), self.cosines, strict=False):
            if cosine > mean:
                first, last = bisect_left(starts, start), bisect_left(starts, end)
                yield first, last, (cosine - mean) / deviation

    @cached_property
    def _order(self) -> list[int]:
        """The segments, those that match best first; those that do not match are in their order."""
        own = [sum(word_weights.values()) for word_weights in self._words]
        padded = [0.0, *own, 0.0]
        scores = [
            score + _NEIGHBOUR_SHARE * max(padded[n], padded[n + 2]) for n, score in enumerate(own)
        ]
        return sorted(range(len(scores)), key=lambda n: (-scores[n], n))

    @property
    def has_match(self) -> bool:
        """Whether the text holds a word of the question, or a passage is near it."""
        return any(self._words)

    def _choose(self, max_bytes: int) -> list[tuple[int, int]]:
        """The segments that match best, each with what leads on to it and its neighbours, as many
        as fit the size, as ranges of characters in the order of the text. What room is left shows
        its beginning."""
        chosen_segments: set[int] = set()
        room = max_bytes
        for best in self._order:
            lead = self._find_lead(best)
            for n in (best, *range(lead, best), best + 1, lead - 1):
                if 0 <= n < len(self._segments) and n not in chosen_segments:
                    start, end = self._segments[n]
                    size = len(self.text[start:end].encode()) + len(_GAP.encode())
                    if size > room and not chosen_segments:  # as much of it as fits
                        shown_bytes = self.text[start:end].encode()[: max(room, 0)]
                        return [(start, start + len(shown_bytes.decode(errors="ignore")))]
                    if size > room:
                        break
                    chosen_segments.add(n)
                    room -= size
        return [self._segments[n] for n in sorted(chosen_segments)]

    def excerpt(self, max_bytes: int) -> str:
        """The segments that match best, at most this many bytes together, with `…` for what is
        left out between, before and after them; empty where no word matches or none fits."""
        chosen_segments = self._choose(max_bytes - 2 * len(_GAP.encode())) if self.has_match else []
        if not chosen_segments:
            return ""
        runs = [chosen_segments[0]]
        for start, end in chosen_segments[1:]:
            if self.text[runs[-1][1] : start].strip():
                runs.append((start, end))
            else:
                runs[-1] = runs[-1][0], end
        shown_bytes = _GAP.join(self.text[start:end] for start, end in runs)
        before = "… " if self.text[: runs[0][0]].strip() else ""
        after = " …" if self.text[runs[-1][1] :].strip() else ""
        return f"{before}{shown_bytes}{after}"

    def find_best(self, max_chars: int) -> tuple[int, int] | None:
        """The range of whole segments, at most this many characters or one segment, that holds most
        of the question's words by weight, and most of the passages near to it, with the segments
        around them; None where neither is there."""
        if not self.has_match:
            return None
        best, best_score = (0, 0), 0.0
        sizes = Counter(word for own in self._words for word in own if word < 0)
        for first, (start, _) in enumerate(self._segments):
            word_weights: dict[int, float] = {}
            meaning = 0.0
            for last in range(first, len(self._segments)):
                if last > first and self._segments[last][1] - start > max_chars:
                    break
                own = self._words[last]
                meaning += sum(own[word] / sizes[word] for word in own if word < 0)
                word_weights |= {word: own[word] for word in own if word >= 0}
                score = sum(word_weights.values()) + meaning
                if score > best_score + 1e-9:
                    best, best_score = (first, last), score
        first, last = best
        lead = self._find_lead(first)
        fits = self._segments[last][1] - self._segments[lead][0] <= max_chars
        return self._grow(lead if fits else first, last, max_chars)

    def _grow(self, first: int, last: int, max_chars: int) -> tuple[int, int]:
        """The range of these segments, with as many after and before them as fit."""
        size = -1
        while size != (first, last):
            size = first, last
            for low, high in ((0, 1), (-1, 0)):
                start, end = max(0, first + low), min(len(self._segments) - 1, last + high)
                if self._segments[end][1] - self._segments[start][0] <= max_chars:
                    first, last = start, end
        return self._segments[first][0], self._segments[last][1]
