"""The sums of the chains' bench and of the calibration."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from strandline.embeddings.embedder import Purpose
from strandline.embeddings.similarity_thresholds import Thresholds
from strandline.llm import prompts
from strandline.llm.heuristic import topic_continuation
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.prompts import PromptLimits
from strandline.llm.provider import ModelRequest
from strandline.llm.types import PromptEvent, RunSummary
from tests.bench import calibrate, chains, fit_heuristic, talks
from tests.bench.calibrate import Pair, edges, shares

AT = datetime(2026, 3, 1, tzinfo=UTC)
BOUNDS = PromptLimits(2000, 24_000)


class Ones:
    """An embedder to which everything is alike."""

    space = "ones/2"
    dimensions = 2

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """The same for each."""
        return [[1.0, 0.0] for _ in texts]


def test_bench_chains_edges_lie_at_sure_pairs() -> None:
    low = [Pair(0.1, True)] * 19 + [Pair(0.2, False)] + [Pair(0.3, True), Pair(0.3, False)] * 5
    high = [Pair(0.8, False)] * 19 + [Pair(0.7, True)]
    found_low, found_high = edges([*low, *high])
    assert 0.2 < found_low <= 0.3
    assert 0.3 < found_high <= 0.7


def test_bench_chains_edges_are_open_without_sure_cosine() -> None:
    pairs = [Pair(step / 50, at % 2 == 0) for at, step in enumerate(range(50))]
    assert edges(pairs) == (-1, 1)
    assert edges([]) == (-1, 1)


def test_bench_chains_edges_are_open_for_few_pairs() -> None:
    assert edges([Pair(0.1, True)] * (calibrate.PAIRS - 1)) == (-1, 1)


def test_bench_chains_shares_add_up() -> None:
    pairs = [Pair(0.1, True), Pair(0.5, True), Pair(0.5, False), Pair(0.9, False)]
    result = shares(pairs, Thresholds(0.2, 0.9, 1.0))
    assert (result.broken, result.gray, result.continued) == (0.25, 0.5, 0.25)


def test_bench_chains_pairs_match_fold() -> None:
    """As many as are asked where everything is gray, and as many breaks as topics change there."""
    talk = talks.read(talks.CORPUS)
    vectors = talks.vectors(Ones(), talk)
    by_topics = {
        seq
        for topic in calibrate.topics_of(talk)
        for seq in [topic[0].turn.seq]
        if topic[0].turn.is_user_message
    }

    def as_people_say(before: object, message: PromptEvent, after: object) -> bool:
        return message.seq not in by_topics

    fold = talks.fold(talk, vectors, Thresholds(-1, 1.1, 1), as_people_say)
    pairs = list(calibrate.pairs_of(talk, vectors))
    assert len(pairs) == fold.request_count
    assert sum(pair.breaks for pair in pairs) == sum(
        run.closed_by == "break" for run in fold.closed
    )


def test_bench_chains_counting_model_matches_heuristic() -> None:
    messages = [
        PromptEvent(
            0, "user:mara", "user", "message", "Ask Petra about the <shackles> of Auk.", AT
        ),
        PromptEvent(1, "agent:keel", "agent", "message", "Petra says they are galvanised.", AT),
    ]
    people = ("user:mara", "agent:keel")

    def make_request(task: str, data: str) -> ModelRequest:
        return ModelRequest(task, "", data, {}, 100)

    events = prompts.render_events("events", messages, people, BOUNDS).json_lines
    counting, heuristic = chains.Counting(), HeuristicModel()
    reply = counting.ask(make_request("entities", events), "json_schema", is_proven=True, timeout=1)
    assert json.loads(reply.text) == heuristic.entities(messages).model_dump()
    before = prompts.render_events("before", messages[:1], people, BOUNDS)
    message = prompts.render_events("message", messages[1:], people, BOUNDS)
    after = prompts.render_events("after", messages[:1], people, BOUNDS)
    all_of_it = (before + message + after).json_lines
    assert json.loads(chains.answer(make_request("continues", all_of_it))) == {"continues": True}
    one = RunSummary(summary="mara: Six shackles.", importance=0.5)
    quotes = (
        prompts.render_summary("earlier", one, BOUNDS)
        + prompts.render_summary("later", one, BOUNDS)
    ).json_lines
    assert (
        json.loads(chains.answer(make_request("merge", quotes)))
        == heuristic.merge(one, one).model_dump()
    )
    assert counting.calls == {"entities": 1}
    assert counting.characters_in > len(events)


def test_bench_chains_stricter_gates_reject_more() -> None:
    result = chains.measure(Ones(), [talks.read(talks.CORPUS)]).figures()
    shares = [result[f"rejected_{mode}"] for mode in chains.MODES]
    assert shares == sorted(shares, reverse=True)
    # Where all messages are alike only the long pauses cut.
    assert result["boundary_recall"] < 0.3


@pytest.mark.proof
def test_bench_chains_heuristic_weights_match_fit() -> None:
    samples = [fit_heuristic.sample(talk) for talk in fit_heuristic.read()]
    assert fit_heuristic.FILE.read_text() == fit_heuristic.file_text(fit_heuristic.fit(samples))


def test_bench_chains_heuristic_weights_belong_to_their_cues() -> None:
    document = json.loads(fit_heuristic.FILE.read_text())
    weights, bias = topic_continuation.load_weights()
    assert (
        dict(zip(topic_continuation.TopicBreakCues._fields, weights, strict=True))
        == document["weights"]
    )
    assert bias == document["bias"]
