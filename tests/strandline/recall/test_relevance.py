"""How candidates are scored: pure functions of words, cosines and neighbours."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from uuid import UUID

import pytest

from strandline.embeddings.space_figures import SHIPPED_FIGURES
from strandline.recall.calibrations import UNCALIBRATED, WITHOUT_VECTOR, calibration_for
from strandline.recall.cosine_scale import CosineDistribution
from strandline.recall.features import (
    CandidateEvent,
    EventScoreFeatures,
    QuestionWord,
    compute_score_features,
)
from strandline.recall.question_mentions import parse_names_and_dates
from strandline.recall.relevance import Calibration, RankedEvents, rank_candidates

NOW = datetime(2026, 6, 10, tzinfo=UTC)
SPACE, FIGURES = next(iter(SHIPPED_FIGURES.items()))
SHIPPED = calibration_for(SPACE, FIGURES, "Where is it?")
WORDS = [QuestionWord("buoy", 1), QuestionWord("red", 40)]
RAW = CosineDistribution(0.0, 1.0)
"""On it, a cosine counts as it is."""


def candidate(
    seq: int, bits: int = 0, cosine: float | None = 0.1, **more: object
) -> CandidateEvent:
    plain = CandidateEvent(
        event_id=UUID(int=seq),
        scope_id=UUID(int=1),
        session_id="s",
        seq=seq,
        place=seq,
        speaker="user:a",
        said_at=NOW,
        said_on=NOW.date(),
        word_bits=bits,
        cosine=cosine,
        passage_cosines=None,
        text_bytes=100,
        question_bytes=0,
        is_statement=False,
        author=None,
        says_nothing=False,
    )
    return replace(plain, **more)


def order(
    candidates: Sequence[CandidateEvent],
    question: str = "Where is it?",
    calibration: Calibration = SHIPPED,
) -> RankedEvents:
    return rank_candidates(
        parse_names_and_dates(question, NOW.date()), WORDS, candidates, 100, calibration
    )


def shares() -> list[float]:
    """Of both words, of all that is asked for."""
    weights = [word.compute_inverse_frequency(100) for word in WORDS]
    return [weight / sum(weights) for weight in weights]


def best(ranking: RankedEvents) -> int:
    return ranking.events[0].candidate.seq


def test_relevance_favours_rare_words() -> None:
    assert best(order([candidate(1, 0b10), candidate(20, 0b01)])) == 20


def test_relevance_keeps_meaning_over_incidental_word() -> None:
    """What ranks fused did: the first by words came first, however weak."""
    assert best(order([candidate(1, 0b10, 0.05), candidate(20, 0, 0.6)])) == 20


@pytest.mark.parametrize(
    ("better", "worse", "question"),
    [
        (candidate(20), candidate(40, question_bytes=100), "Where is it?"),
        (candidate(20, speaker="user:bob"), candidate(40), "What did Bob say?"),
        (
            candidate(20, said_on=date(2026, 3, 3)),
            candidate(40),
            "What was it in March?",
        ),
        (candidate(20), candidate(40, cosine=-0.1), "Where is it?"),
        (candidate(20), candidate(40, text_bytes=4), "Where is it?"),
    ],
)
def test_relevance_features_raise_or_lower_rank(
    better: CandidateEvent, worse: CandidateEvent, question: str
) -> None:
    assert best(order([better, worse], question)) == 20
    assert best(order([worse, better], question)) == 20


def said(seq: int, day: int, cosine: float = 0.4, **more: object) -> CandidateEvent:
    """What was said on a day of May, in a session of its own."""
    moment = datetime(2026, 5, day, tzinfo=UTC)
    return replace(candidate(seq, 0, cosine), said_at=moment, session_id=str(seq), **more)


def test_relevance_for_a_question_about_now_favours_newest() -> None:
    events = [said(1, day=20, cosine=0.38), said(2, day=3)]
    assert best(order(events, "Where is it?")) == 1
    assert best(order(events, "Where was it?")) == 2
    assert best(order(events, "Where is it since May 2026?")) == 2
    ranking = order(events)
    assert [event.features.newness for event in ranking.events] == [1, 0]


def test_relevance_newness_is_of_short_messages_of_people() -> None:
    events = [
        said(1, day=3),
        said(2, day=9),
        said(3, day=20, author="agent"),
        said(4, day=21, author="tool"),
        said(5, day=22, text_bytes=4000),
        said(6, day=23, text_bytes=0),
        said(7, day=24, is_statement=True),
    ]
    newness = {one.candidate.seq: one.features.newness for one in order(events).events}
    assert newness == {1: 0, 2: 1, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0}


def test_relevance_newness_is_of_the_ten_best() -> None:
    events = [said(n, day=n, cosine=0.9 - n / 100) for n in range(1, 13)]
    newness = {one.candidate.seq: one.features.newness for one in order(events).events}
    assert newness == {n: pytest.approx(min(n - 1, 9) / 9 if n <= 10 else 0) for n in newness}


def test_relevance_newness_does_not_lift_what_is_far_off() -> None:
    assert best(order([said(1, day=20, cosine=0.1), said(2, day=3, cosine=0.6)])) == 2


def test_relevance_of_a_tool_counts_on_the_scale_of_tools() -> None:
    """A tool that wrote sixty lines makes its own cosine usual, and no sentence less near."""
    question = parse_names_and_dates("Where was it?", NOW.date())
    sentence, line = said(1, day=3, cosine=0.35), said(2, day=4, cosine=0.5, author="tool")
    views: dict[str, tuple[list[float], list[float]]] = {
        "flood": ([0.15] * 10, [0.5, 0.48, 0.52] * 20),
        "one scale": ([0.15] * 10 + [0.5, 0.48, 0.52] * 20, []),
    }
    ranking = {
        name: rank_candidates(question, WORDS, [sentence, line], 70, SHIPPED, None, *samples)
        for name, samples in views.items()
    }
    assert best(ranking["flood"]) == 1
    assert best(ranking["one scale"]) == 2


def test_relevance_scales_cosines_by_view() -> None:
    """So that an embedding space whose cosines are all high, and close, ranks alike."""
    cosines = (0.1, 0.4, -0.1, None, 0.2)
    wide = [candidate(n, 0b01, cosine) for n, cosine in enumerate(cosines)]
    narrow = [
        candidate(n, 0b01, None if cosine is None else 0.8 + cosine / 4)
        for n, cosine in enumerate(cosines)
    ]
    question = parse_names_and_dates("buoy", NOW.date())
    expected = compute_score_features(question, WORDS, wide, 100, CosineDistribution(0.1, 0.1), 4.0)
    features = compute_score_features(
        question, WORDS, narrow, 100, CosineDistribution(0.825, 0.025), 4.0
    )
    for one, other in zip(features, expected, strict=True):
        assert one == pytest.approx(other)
    assert expected[1].cosine == pytest.approx(3.0)
    assert expected[1].cosine_before == pytest.approx(0.0)


def test_relevance_features_ignore_other_candidates() -> None:
    """The scale is the view's: whatever else is found, a cosine stays what it is."""
    question = parse_names_and_dates("buoy", NOW.date())
    few = [candidate(10, cosine=0.5), candidate(30, cosine=0.2)]
    near = [candidate(100 + 10 * n, cosine=0.9) for n in range(50)]
    scale = CosineDistribution(0.1, 0.12)
    alone = compute_score_features(question, WORDS, few, 100, scale, 4.0)
    assert compute_score_features(question, WORDS, [*few, *near], 100, scale, 4.0)[:2] == alone


def test_relevance_tells_agent_and_tool_text_apart() -> None:
    rows = [candidate(10), candidate(30, author="agent"), candidate(50, author="tool")]
    features = compute_score_features(
        parse_names_and_dates("a", NOW.date()), WORDS, rows, 100, RAW, 0.0
    )
    assert [(f.by_agent, f.by_tool) for f in features] == [(0, 0), (1, 0), (0, 1)]
    for author in ("agent", "tool"):
        ranking = order([candidate(1), candidate(20, author=author)])
        assert best(ranking) == 1, "a person's comes first, although it is older"


def test_relevance_discounts_long_neighbours() -> None:
    """60 words of six bytes each are short; of twice as many, half counts."""
    question = parse_names_and_dates("buoy", NOW.date())
    middle = candidate(10, 0b01, 0.4, text_bytes=75, question_bytes=30)
    for sizes, damping in (((360, 360), 1.0), ((720, 720), 0.5), ((0, 1440), 0.25), ((0, 0), 1.0)):
        lane = [
            candidate(9, 0b10, 0.2, text_bytes=sizes[0]),
            middle,
            candidate(11, 0, 0.6, text_bytes=sizes[1]),
        ]
        features = compute_score_features(question, WORDS, lane, 100, RAW, 0.0)[1]
        assert features.words_nearby == pytest.approx(damping)
        assert features.cosine_before == pytest.approx(0.2 * damping)
        assert features.cosine_after == pytest.approx(0.6 * damping)
        assert features.cosine_nearby == pytest.approx(0.2 * damping)
        assert features.length == pytest.approx(0.5 * damping)
        assert features.question_share == pytest.approx(0.4 * damping)
        assert features.words == pytest.approx(shares()[0])
        assert features.cosine == 0.4
    far = [candidate(7, text_bytes=9000), middle, candidate(13, text_bytes=9000)]
    assert compute_score_features(question, WORDS, far, 100, RAW, 0.0)[1].length == 0.5


def test_relevance_of_a_long_text_counts_words_less() -> None:
    """By the square root of how many times it is as long as 60 words; a payload, whose size is not
    looked up, and a short text count in full. Neighbours' words count less for it, too."""
    question = parse_names_and_dates("Where is it?", NOW.date())
    sizes = (0, 100, 360, 1440, 360 * 100)
    alone = [candidate(100 * n, 0b11, text_bytes=size) for n, size in enumerate(sizes)]
    features = compute_score_features(question, WORDS, alone, 100, RAW, 0.0)
    assert [row.words for row in features] == pytest.approx([1.0, 1.0, 1.0, 0.5, 0.1])
    assert [row.words_nearby for row in features] == pytest.approx([1.0, 1.0, 1.0, 0.5, 0.1])


def test_relevance_of_words_favours_short_text() -> None:
    """What says one thing in the question's words stands before what says a hundred."""
    long, short = candidate(20, 0b01, text_bytes=3000), candidate(1, 0b01, text_bytes=300)
    assert best(order([long, short])) == 1


def test_relevance_ignores_text_length() -> None:
    """Nor is a short message worse for being stored as a payload, whose size nobody looks up, nor a
    statement for being short."""
    sizes = (15, 75, 150, 300, 100_000, 0)
    rows = [candidate(10 * n, text_bytes=size) for n, size in enumerate(sizes)]
    rows.append(candidate(99, text_bytes=15, is_statement=True))
    question = parse_names_and_dates("Where is it?", NOW.date())
    features = compute_score_features(question, WORDS, rows, 100, RAW, 0.0)
    assert [feature.length for feature in features] == [0.1, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_relevance_words_ignore_question_length() -> None:
    """As shares of the question, so that scores of questions can be compared."""
    question = parse_names_and_dates("Where is it?", NOW.date())
    for words in (WORDS, [*WORDS, QuestionWord("tide", 3), QuestionWord("low", 90)]):
        everything = candidate(1, (1 << len(words)) - 1)
        (features,) = compute_score_features(question, words, [everything], 100, RAW, 0.0)
        assert features.words == features.words_nearby == pytest.approx(1.0)
    (features,) = compute_score_features(question, [], [candidate(1)], 100, RAW, 0.0)
    assert features.words == 0.0


def test_relevance_rises_with_session_neighbours() -> None:
    near = [candidate(10), candidate(11, 0b01), candidate(30), candidate(51, 0b01, session_id="t")]
    features = compute_score_features(
        parse_names_and_dates("buoy", NOW.date()), WORDS, near, 100, RAW, 0.0
    )
    rare, _ = shares()
    assert [f.words_nearby for f in features] == [rare, rare, 0.0, rare]
    assert [f.words for f in features] == [0.0, rare, 0.0, rare]
    assert features[0].cosine_after == features[1].cosine_before == 0.1
    assert features[0].cosine_nearby == pytest.approx(0.1 / 4)


def test_relevance_ignores_neighbours_of_other_sessions() -> None:
    alone = candidate(10)
    for other in (
        candidate(11, 0b01, session_id="t"),
        candidate(11, 0b01, scope_id=UUID(int=2)),
        candidate(15, 0b01),
    ):
        features = compute_score_features(
            parse_names_and_dates("buoy", NOW.date()), WORDS, [alone, other], 100, RAW, 0.0
        )
        assert features[0].words_nearby == 0.0


def test_relevance_neighbours_go_by_place_in_session() -> None:
    """Whatever other sessions of the scope wrote in between."""
    lane = [
        candidate(10, place=1, cosine=0.2),
        candidate(30, 0b01, place=2, cosine=0.5),
        candidate(31, 0b10, place=9, cosine=0.2),
    ]
    features = compute_score_features(
        parse_names_and_dates("buoy", NOW.date()), WORDS, lane, 100, RAW, 0.0
    )
    rare, common = shares()
    assert [f.words_nearby for f in features] == [rare, rare, common]
    assert features[0].cosine_after == 0.5
    assert [f.cosine_after for f in features[1:]] == [0.0, 0.0], "no candidate is after them"


def test_relevance_common_word_is_no_other_speaker() -> None:
    crew = [candidate(1, speaker="agent:keel"), candidate(9, speaker="user:mara")]
    for question, others in (
        ("Is the keel dry, and what colour?", [0, 0]),
        ("What did Keel say?", [0, 1]),
        ("What did Mara say of the keel?", [1, 0]),
    ):
        features = compute_score_features(
            parse_names_and_dates(question, NOW.date()), WORDS, crew, 100, RAW, 0.0
        )
        assert [f.other_speaker for f in features] == others, question


def test_relevance_known_falls_with_searched_events() -> None:
    only, question = (
        [candidate(1, 0b01, 0.4)],
        parse_names_and_dates("Where is the buoy?", NOW.date()),
    )
    known_ids = [
        rank_candidates(question, WORDS, only, 900, SHIPPED, n).answer_probability
        for n in (1, 30, 900, None)
    ]
    assert known_ids == sorted(known_ids, reverse=True)
    assert known_ids[2] == known_ids[3]


def test_relevance_ties_go_to_newer_event() -> None:
    assert [e.candidate.seq for e in order([candidate(10), candidate(90)]).events] == [90, 10]


def test_relevance_of_nothing_is_not_known() -> None:
    assert order([]) == RankedEvents(0.0, ())


@pytest.mark.parametrize("calibration", [SHIPPED, WITHOUT_VECTOR])
def test_relevance_is_probability_falling_with_score(calibration: Calibration) -> None:
    chance = random.Random(3)
    for size in (1, 2, 5, 40, 400):
        candidates = [
            candidate(n, chance.randrange(4), chance.choice([None, chance.uniform(-1, 1)]))
            for n in range(1, size + 1)
        ]
        ranking = order(candidates, "Where is the buoy?", calibration)
        scores = [event.score for event in ranking.events]
        relevance = [event.relevance for event in ranking.events]
        assert scores == sorted(scores, reverse=True)
        assert relevance == sorted(relevance, reverse=True)
        assert 0 <= relevance[-1] <= relevance[0] <= 1
        assert 0 <= ranking.answer_probability <= 1


def test_relevance_known_rises_with_best_hit() -> None:
    known_ids = [
        order([candidate(1, 0b01, cosine)]).answer_probability for cosine in (0.0, 0.2, 0.4, 0.6)
    ]
    assert known_ids == sorted(known_ids)
    assert known_ids[-1] - known_ids[0] > 0.2


def test_relevance_without_vector_is_average() -> None:
    without, with_one = candidate(1, cosine=None), candidate(1, cosine=SHIPPED.usual.mean)
    assert order([without]).events[0].score == order([with_one]).events[0].score


def test_relevance_without_vector_is_near_by_words() -> None:
    """What was said just now is not below what is somewhat like the question."""
    fresh, similar = candidate(20, 0b11, None), candidate(1, 0, 0.5)
    assert best(order([fresh, similar])) == 20
    assert best(order([candidate(20, 0b10, None), similar])) == 1, "one common word is not enough"
    (event,) = order([fresh]).events
    assert event.features.cosine == pytest.approx(SHIPPED.cosine_by_words)


def test_relevance_of_small_view_keeps_words_rare() -> None:
    assert QuestionWord("buoy", 1).compute_inverse_frequency(1) == QuestionWord(
        "buoy", 1
    ).compute_inverse_frequency(500)
    assert QuestionWord("buoy", 1).compute_inverse_frequency(5000) > QuestionWord(
        "buoy", 1
    ).compute_inverse_frequency(500)
    assert QuestionWord("buoy", 900).compute_inverse_frequency(500) > 0, "more pieces than events"


def test_relevance_score_is_weighted_sum() -> None:
    (event,) = order([candidate(1, 0b11, 0.5)]).events
    assert event.score == pytest.approx(math.sumprod(SHIPPED.features, event.features))
    assert len(event.features) == len(EventScoreFeatures._fields)


def test_relevance_of_a_space_depends_on_question_language() -> None:
    english = calibration_for(SPACE, FIGURES, "Where is the red buoy?")
    spanish = calibration_for(SPACE, FIGURES, "¿Dónde está la boya roja?")
    japanese = calibration_for(SPACE, FIGURES, "赤いブイはどこですか")
    assert english.usual == (FIGURES.questions.mean, FIGURES.questions.deviation)
    for other in (spanish, japanese):
        assert other.usual == (FIGURES.other_questions.mean, FIGURES.other_questions.deviation)
        assert other._replace(usual=english.usual) == english


def test_relevance_of_a_space_without_figures_is_none() -> None:
    blurred = FIGURES._replace(questions=FIGURES.questions._replace(related=FIGURES.questions.mean))
    for figures in (None, blurred):
        calibration = calibration_for("openai:somebodys/7", figures, "Where is it?")
        assert calibration == UNCALIBRATED
        assert not calibration.is_calibrated
    assert calibration_for("openai:somebodys/7", FIGURES, "Where is it?").is_calibrated
