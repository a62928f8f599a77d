"""The deterministic heuristic model: what it says of conversations, and that it always says the
same."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.chains import quality
from strandline.chains.heat import HeatInputs, compute_heat_with_factors
from strandline.embeddings.similarity_thresholds import Thresholds
from strandline.llm.heuristic import digest, topic_continuation
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.heuristic.words import iter_stems, split_sentences, word_list
from strandline.llm.types import PromptEvent, RunSummary
from strandline.tuning import DEFAULTS
from tests.bench import scores, talks

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HEURISTIC = HeuristicModel()


def say(*lines: str, every: float = 30.0) -> list[PromptEvent]:
    """`mara: text`, so many seconds apart; without a name it is an observation."""
    results: list[PromptEvent] = []
    for place, line in enumerate(lines):
        who, _, text = line.partition(": ")
        at = NOON + timedelta(seconds=every * place)
        kind = "agent" if who == "keel" else "user"
        results.append(PromptEvent(place + 1, f"{kind}:{who}", kind, "message", text, at))
    return results


MOORING = (
    "mara: The chain of the mooring rusts where it meets the shackle.",
    "keel: Stainless shackles on galvanised chain corrode. I'd use galvanised shackles throughout.",
    "mara: Then galvanised shackles it is, 16 mm, six of them.",
    "keel: Recorded: six galvanised shackles, 16 mm.",
)


def continues(message: str, *before: str, pause: float = 30.0, after: Sequence[str] = ()) -> bool:
    """Does a message go on, so many seconds after the mooring, or another run?"""
    run = say(*(before or MOORING))
    text, *later = say(message, *after)
    start = run[-1].said_at + timedelta(seconds=pause)
    later = [_at(one, start + (one.said_at - text.said_at)) for one in later]
    return HEURISTIC.continues(run, _at(text, start), later).continues


def _at(event: PromptEvent, at: datetime) -> PromptEvent:
    return PromptEvent(event.seq, event.speaker, event.role, event.type, event.text, at)


def test_heuristic_continuation_holds_for_first_message() -> None:
    (first,) = say("mara: By the way, hello.")
    assert HEURISTIC.continues([], first, []).continues


@pytest.mark.parametrize(
    "message",
    [
        "mara: Yes, and the shackles of Cod as well.",
        "mara: Good.",
        "tomas: How much do galvanised shackles cost?",
        "mara: The chain can stay, only the shackle at the end goes.",
    ],
)
def test_heuristic_continuation_is_found(message: str) -> None:
    assert continues(message)


@pytest.mark.parametrize(
    "message",
    [
        "mara: By the way, my sister Linnea gets married in September, in a barn in Thornby.",
        "mara: Different subject: the printer on the second floor jams again, third time today.",
        "mara: Next thing, the office needs a new tenant for the room under the roof by January.",
    ],
)
def test_heuristic_continuation_ends_at_other_topic(message: str) -> None:
    assert not continues(message)


def test_heuristic_continuation_ends_sooner_after_pause() -> None:
    message = "mara: The barber on Harrow Street closes early today."
    answers = [continues(message, pause=seconds) for seconds in (5, 1500)]
    assert answers == [True, False]


def test_heuristic_continuation_holds_for_answer_to_question() -> None:
    questions = (*MOORING[:3], "keel: Who brings the rest of the gear to the harbour?")
    statements = (*MOORING[:3], "keel: Somebody brings the rest of the gear to the harbour.")
    message = "mara: Petra drives the old lorry from Marrick over with the ropes."
    answers = [continues(message, *before, pause=300) for before in (questions, statements)]
    assert answers == [True, False]


def test_heuristic_continuation_uses_later_messages() -> None:
    message = "mara: The barber on Harrow Street closes early today."
    there = ("keel: The barber's closes at four.", "mara: Then I leave the barber for tomorrow.")
    back = ("keel: Noted.", "mara: And the shackle at the end of the mooring's chain?")
    answers = [continues(message, pause=120, after=after) for after in (there, back)]
    assert answers == [False, True]


def test_heuristic_continuation_ignores_negative_pause() -> None:
    assert continues("mara: And the shackles of Cod too.", pause=-86_400)


def test_heuristic_names_include_titles_and_articles() -> None:
    run = say(
        "mara: We met Mrs. Vance and Father Odell at St Anne's Hall, and saw The Silver Ebb.",
        "tomas: Then Dr. Reyes came.",
    )
    results = {entity.name for entity in HEURISTIC.entities(run).entities}
    assert results == {
        "Mrs. Vance",
        "Father Odell",
        "St Anne's Hall",
        "The Silver Ebb",
        "Dr. Reyes",
    }


def test_heuristic_names_include_identifiers() -> None:
    run = say("mara: Cat6 for the rack, tag it v2.3, see 4fe91ab and AB-C9. On May5 at 1200 we go.")
    results = {entity.name for entity in HEURISTIC.entities(run).entities}
    assert results == {"Cat6", "v2.3", "4fe91ab", "AB-C9"}


def test_heuristic_names_have_kinds() -> None:
    run = say(
        "mara: Ask Petra whether Halberg Logistics got INV-20417. Wim rang from Port Ellary.",
        "keel: Petra says modem/queue.c in version 0.9.4 of the BP-7 is at fault, on Monday 5 May.",
        "mara: Auk, Brill and Cod wait. Tell Mr Brandt, please, and mind the GPS.",
        "tomas: Today is fine. I agree, Keel. Maybe Tomorrow? 24-hour shifts at 9am, OK.",
    )
    results = {entity.name: entity.kind for entity in HEURISTIC.entities(run).entities}
    assert results == {
        "Petra": "other",
        "Halberg Logistics": "company",
        "INV-20417": "other",
        "Wim": "other",
        "Port Ellary": "other",
        "modem/queue.c": "other",
        "0.9.4": "product",
        "BP-7": "other",
        "Auk": results["Auk"],
        "Brill": results["Brill"],
        "Cod": results["Cod"],
        "Mr Brandt": "person",
        "GPS": "technology",
        "Keel": "person",
    }
    assert next(iter(results)) == "Petra"


def test_heuristic_names_are_found_in_small_letters() -> None:
    run = say(
        "joss: nunos key is lost. asked tam and hans at the DOME, she saw it in Tolverne",
        "joss: hallam has a velmo 5, nuno came 3 times",
        "tamsin: A tartan one.",
    )
    results = {entity.name for entity in HEURISTIC.entities(run).entities}
    assert results == {"nuno", "tam", "hans", "Tolverne", "hallam", "velmo 5"}


def test_heuristic_names_may_end_in_nouns_and_numbers() -> None:
    run = say(
        "mara: We read the Domax 3 manual before Perigee Night, under the Moon. Ask Petra Thanks.",
        'mara: Sixty-six saw "The Quiet Sky" in Postgale 3.8.2, file NM/20771 and 2027_M1_01.fits.',
    )
    results = {entity.name for entity in HEURISTIC.entities(run).entities}
    names = {"Domax 3", "Perigee Night", "Petra", "The Quiet Sky", "Postgale 3.8.2"}
    assert results == names | {"NM/20771", "2027_M1_01.fits"}


def test_heuristic_names_may_be_ordinary_words() -> None:
    run = say(
        "mara: We heard Up With The Larks in the New Year, and a repeat of Furrow and Fold.",
        "mara: The Halden TX300 hums at Cutler's Weir. Radio Hallowmere pays Mara's Calorix.",
        "leo: he asked leo and tom btw. the mesh is torn",
    )
    results = {entity.name for entity in HEURISTIC.entities(run).entities}
    names = {"Up With The Larks", "Furrow and Fold", "Halden TX300", "Cutler's Weir"}
    assert results == names | {"Radio Hallowmere", "Mara", "Calorix", "leo", "tom"}


def test_heuristic_names_ignore_logs() -> None:
    log = "\n".join(f"2026-03-01 Worker-{n:03} Started Backup Of Disk" for n in range(50))
    run = [PromptEvent(1, "user:mara", "user", "message", log, NOON)]
    assert HEURISTIC.entities(run).entities == []


def test_heuristic_summary_is_most_telling_sentence() -> None:
    summary = HEURISTIC.summarise(say(*MOORING)).summary
    assert summary == "Recorded: six galvanised shackles, 16 mm."


def test_heuristic_summary_finds_decision_in_long_run() -> None:
    chatter = [f"mara: Well, that is how it goes with the {word}." for word in "abcdefgh" * 20]
    decision = "Decided: we sail on 15 September, 2,150 a day."
    run = say(*chatter[:80], f"keel: {decision}", *chatter[80:])
    assert HEURISTIC.summarise(run).summary == decision


@pytest.mark.parametrize(
    "other",
    [
        "Does the tank of the buoy leak again where Petra repaired the tank in June?",
        "https://tank.example/buoy/leak?tank=3 has the tank of the buoy and the leak of the tank",
        "2026-03-01 12:00:01 ERROR tank leak on buoy 3: tank empty, buoy lost",
        "```\nbuoy.tank.leak(tank, buoy, 3)\n```",
        '{"tank": 3, "buoy": "tank leaks", "leak": "tank of the buoy"}',
        "Noted, 3.",
    ],
)
def test_heuristic_summary_prefers_statement(other: str) -> None:
    statement = "The seal of the boat is worn out."
    assert HEURISTIC.summarise(say(f"mara: {other}", f"keel: {statement}")).summary == statement


def test_heuristic_summary_is_question_if_nothing_else() -> None:
    question = "Who waters the roses in August?"
    assert HEURISTIC.summarise(say(f"mara: {question}", "keel: Noted.")).summary == question


def test_heuristic_summary_has_no_markdown() -> None:
    text = "## Release\n- **Ship** it on Friday at 10:00, see [the notes](https://example.org/a)"
    assert HEURISTIC.summarise(say(f"mara: {text}")).summary == (
        "Ship it on Friday at 10:00, see the notes"
    )


def test_heuristic_summary_cuts_long_sentence_at_word() -> None:
    summary = HEURISTIC.summarise(say("mara: " + "We moved the buoy, " * 40)).summary
    assert summary.endswith(("the…", "buoy,…", "moved…", "We…"))
    assert digest.SUMMARY_CHARACTERS - 10 < len(summary) <= digest.SUMMARY_CHARACTERS


def test_heuristic_importance_ranks_decision_over_small_talk() -> None:
    talk = HEURISTIC.summarise(say("mara: Nice weather.", "keel: It is.")).importance
    deal = HEURISTIC.summarise(say(*MOORING)).importance
    allergy = HEURISTIC.summarise(
        say("mara: I have a serious allergy, for emergencies.")
    ).importance
    assert talk < 0.1 < 0.3 < deal < allergy < 1


@pytest.mark.parametrize(
    ("message", "is_kept"),
    [
        ("Please remember that the spare key hangs behind the door.", True),
        ("Keep in mind: the gate sticks.", True),
        ("He is allergic to nuts.", True),
        ("It is her birthday on Sunday.", True),
        ("My sister Linnea likes tea.", True),
        ("Can you remember to shut the gate?", False),
        ("I can't remember, sorry.", False),
        ("My tea is cold, Linnea.", False),
        ("A table for six at the Anchor, please.", False),
    ],
)
def test_heuristic_importance_finds_lasting_fact_anywhere(message: str, is_kept: bool) -> None:
    """Once in a long run is enough; a booking is nothing of the kind."""
    talk = [f"mara: Well, that is how it goes with the {word}." for word in "abcdefgh"]
    before = HEURISTIC.summarise(say(*talk, f"mara: {'x' * len(message)}")).importance
    after = HEURISTIC.summarise(say(*talk[:4], f"mara: {message}", *talk[4:])).importance
    assert (after >= 0.3) is is_kept
    assert (after > before + 0.25) is is_kept


@pytest.mark.parametrize("first", ["demo-0025", "demo-0088", "demo-0020", "demo-0244"])
def test_heuristic_importance_of_demo_reaches_graph(first: str) -> None:
    (run,) = [topic for topic in _topics(talks.DEMO) if topic[0].key == first]
    importance = HEURISTIC.summarise([event.prompt for event in run]).importance
    density = quality.compute_density([event.trait for event in run])
    state = HeatInputs(importance, density, 1.0, NOON)
    half_an_hour_later = NOON + timedelta(minutes=30)
    heat = compute_heat_with_factors(state, half_an_hour_later, DEFAULTS).heat
    assert heat >= DEFAULTS.promote + 0.1


def test_heuristic_merge_keeps_most_telling_sentence() -> None:
    one = RunSummary(summary="We take the blue rope.", importance=0.6)
    other = RunSummary(summary="The blue rope costs 40 euro.", importance=0.4)
    both = HEURISTIC.merge(one, other)
    assert both.summary == "The blue rope costs 40 euro."
    assert 0.6 < both.importance < 1
    long = RunSummary(
        summary="".join(f"Fact {n} is told, " for n in range(300))[:4000], importance=1
    )
    assert len(HEURISTIC.merge(long, long).summary) <= digest.SUMMARY_CHARACTERS


@pytest.mark.parametrize(
    ("topic", "lines"),
    [
        ("winch brake", ("The winch brake has gone.", "Then we need a new winch brake by Friday.")),
        ("printer", ("The printer jams again.", "I'll look at the printer.", "The printer, then.")),
        ("Vestmark Institute", ("I had an offer from the Vestmark Institute of Oslo.", "When?")),
        ("crab boat Marigold", ("It was on board of the crab boat Marigold.", "Lucky.")),
        ("barometer", ("Did the barometer survive?", "The barometer is well.", "The barometer!")),
        ("restocking fee", ("Less the restocking fee they paid.", "How much is the fee?")),
        (None, ("Well, we'll see about that tomorrow.", "It is what it is.")),
        (None, ("She owns it and they rust.", "Good.")),
    ],
)
def test_heuristic_topic_is_noun_phrase_or_none(topic: str | None, lines: Sequence[str]) -> None:
    speakers = ("mara", "keel", "mara")
    run = say(*(f"{who}: {line}" for who, line in zip(speakers, lines, strict=False)))
    assert HEURISTIC.topic(run).topic == topic


def test_heuristic_topic_stands_in_text() -> None:
    for path in (talks.DEMO, *talks.UNSEEN_SET):
        for run in _topics(path):
            topic = HEURISTIC.topic([event.prompt for event in run]).topic
            if topic is None:
                continue
            assert any(topic in event.prompt.text for event in run)
            assert len(topic.split()) <= 5
            for word in topic.lower().split():
                assert word not in word_list("stop") | word_list("does"), topic


@pytest.mark.parametrize(
    "text",
    [
        "Die Boje fährt am Freitag hinaus, und der Techniker kommt mit dem Boot nach Kiel.",
        "Буй уходит в пятницу, механик приедет в Мурманск.",
        "浮标星期五出海。机械师坐船来上海。",
        "الطوافة تبحر يوم الجمعة، هل تأتي؟",
        "🙂🙂",
        "",
        "...!!!???",
        "A" * 10_000,
    ],
)
def test_heuristic_model_answers_any_language(text: str) -> None:
    run = [PromptEvent(n, "user:ana", "user", "message", text, NOON) for n in (1, 2)]
    assert 0 < len(HEURISTIC.summarise(run).summary) <= digest.SUMMARY_CHARACTERS
    assert HEURISTIC.topic(run).topic is None
    HEURISTIC.entities(run)
    # The very same again goes on, in whatever letters.
    assert HEURISTIC.continues(run, run[0], run).continues


@pytest.mark.parametrize(
    "rest",
    [
        *(f"{between} berth" for between in ("-" * 200, "'" * 200, " " * 200, "- " * 100)),
        " ".join(letter * 48 for letter in "abcd"),
    ],
)
def test_heuristic_topic_rejects_long_phrase(rest: str) -> None:
    run = say(*[f"mara: It is paid and for you by the harbour {rest} and the tug."] * 3)
    assert HEURISTIC.topic(run).topic == "tug"


def test_heuristic_topic_has_at_most_200_characters() -> None:
    def topic(between: str) -> str | None:
        run = say(*[f"mara: It is paid and for you by the harbour {between} berth."] * 3)
        return HEURISTIC.topic(run).topic

    assert topic("-" * 186) == f"harbour {'-' * 186} berth"
    assert topic("-" * 187) is None


def test_heuristic_stems_chinese_by_letter_pairs() -> None:
    assert list(iter_stems("浮标出海")) == ["浮标", "标出", "出海"]


@given(st.lists(st.text(max_size=300), min_size=1, max_size=6), st.floats(-1e6, 1e6))
def test_heuristic_model_never_fails(texts: list[str], pause: float) -> None:
    run = [PromptEvent(n, None, "user", "message", text, NOON) for n, text in enumerate(texts)]
    later = PromptEvent(99, "user:b", "user", "message", texts[0], NOON + timedelta(seconds=pause))
    HEURISTIC.continues(run, later, run)
    summary = HEURISTIC.summarise(run)
    for one in (summary, HEURISTIC.merge(summary, summary)):
        assert 0 <= one.importance <= 1
        assert len(one.summary) <= digest.SUMMARY_CHARACTERS
    assert len(HEURISTIC.topic(run).topic or "") <= 200
    assert all(0 < len(entity.name) <= 200 for entity in HEURISTIC.entities(run).entities)


def _answers() -> str:
    messages: list[object] = []
    for topic in _topics(talks.CORPUS):
        run = [event.prompt for event in topic]
        messages += [
            HEURISTIC.continues(run[:-1], run[-1], run).continues,
            *map(str, _tellings(run)),
        ]
    return json.dumps(messages)


def _tellings(run: list[PromptEvent]) -> tuple[object, ...]:
    return HEURISTIC.summarise(run), HEURISTIC.topic(run), HEURISTIC.entities(run)


def _topics(path: talks.Path) -> list[list[talks.Event]]:
    from tests.bench.calibrate import topics_of

    return topics_of(talks.read(path))


@pytest.mark.integration
@pytest.mark.proof
def test_heuristic_model_is_same_in_every_process() -> None:
    """No dice: not the order of a set either, which differs from process to process."""
    code = "from tests.strandline.llm.heuristic import test_model as t; print(t._answers())"
    events = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": "shared:.", "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in (1, 2)
    }
    assert events == {_answers()}


def _score(path: talks.Path) -> tuple[float, float]:
    """Boundary and entity F1 with every pair of messages left to the heuristic model: no vector is
    needed."""
    talk = talks.read(path)
    fold = talks.fold(talk, {event.turn.seq: [1.0] for event in talk.events}, _ALL_GRAY)
    chains = talks.chains_of(fold)
    return scores.boundaries(talk.expected, chains).f1, scores.entities(talk.expected, chains).f1


_ALL_GRAY = Thresholds(low=-1.0, high=1.1, merge=1.0)


def test_heuristic_model_score_holds_on_demo() -> None:
    boundaries, entities = _score(talks.DEMO)
    assert (boundaries >= 0.88, entities >= 0.93) == (True, True)


@pytest.mark.proof
def test_heuristic_model_score_holds_on_fitting_set() -> None:
    """What docs/chains.md says, cut off; worse is a change for the worse."""
    results = {path: _score(path) for path in talks.FITTING_SET}
    boundaries = [one for one, _ in results.values()]
    entities = [one for path, (_, one) in results.items() if talks.read(path).expected.names]
    assert (mean(boundaries) >= 0.86, min(boundaries) >= 0.70) == (True, True)
    assert (mean(entities) >= 0.93, min(entities) >= 0.82) == (True, True)


def test_heuristic_model_score_detects_guessing(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(1)

    def guesses(*_: object) -> bool:
        return dice.random() < 0.75

    monkeypatch.setattr(topic_continuation, "continues_topic", guesses)
    assert _score(talks.DEMO)[0] < 0.75


def test_heuristic_sentences_split_at_end_marks() -> None:
    text = 'It costs 4.5 euro. "Really?" Yes!\nNext line。下一句'
    assert split_sentences(text) == [
        "It costs 4.5 euro.",
        '"Really?',
        "Yes!",
        "Next line。",
        "下一句",
    ]
