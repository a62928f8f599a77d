"""Noise: near-duplicates share one place, and what says nothing pushes out nothing that does.

The cases were written, and their file frozen, before it was seen how they come out.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from strandline.recall.near_duplicates import make_near_duplicate_key
from tests.support import Gateway, ScratchDatabase

HERE = Path(__file__).parent
CASES_FILE = HERE / "noise_cases.jsonl"
CASES_SHA256 = "e45e7c44064073f97a7ec88f196f514ae9a707720f8b67d7247e458affabea95"
CASES = [json.loads(line) for line in CASES_FILE.read_text().splitlines()]
LOGS = HERE / "field" / "tool_noise.jsonl"
ANN, OMAR, HELPER = "user:ann", "user:omar", "agent:helper"
WRITERS: Mapping[str, Mapping[str, str]] = {
    "ann": {"speaker": ANN, "role": "user", "type": "message"},
    "omar": {"speaker": OMAR, "role": "user", "type": "message"},
    "helper": {"speaker": HELPER, "role": "agent", "type": "message"},
    "tool": {"speaker": HELPER, "role": "agent", "type": "observation"},
}


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key()


def list_events(case: Any) -> Iterator[dict[str, object]]:
    """The events of a case: each as often as it says, numbered, minute after minute."""
    participants = [ANN, HELPER] + [OMAR] * any(one["by"] == "omar" for one in case["events"])
    minute = 0
    for one in case["events"]:
        for n in range(one.get("times", 1)):
            minute += 1
            yield {
                **WRITERS[one["by"]],
                "participants": participants,
                "session_id": "s",
                "content": one["content"].replace("{n}", str(n)),
                "occurred_at": one.get("at")
                or f"2026-05-02T{8 + minute // 60:02}:{minute % 60:02}:00Z",
            }


def store(gateway: Gateway, key: str, events: list[dict[str, Any]]) -> None:
    """Append events, and let them be embedded."""
    for start in range(0, len(events), 20):
        body = {"events": events[start : start + 20]}
        reply = gateway.call("POST", "/api/v1/events/batch", body, key=key)
        assert (reply.status, reply.body["failed"]) == (200, 0), reply.text
    gateway.sweep()


def recall(gateway: Gateway, key: str, question: str, **more: object) -> Any:
    body = {"query": question, "participants": [ANN], **more}
    reply = gateway.call("POST", "/api/v1/recall", body, key=key)
    assert reply.status == 200, reply.text
    return reply.body


def read_context(gateway: Gateway, key: str, question: str, **more: object) -> str:
    body = {"query": question, "participants": [ANN], "budget": 1000, **more}
    reply = gateway.call("POST", "/api/v1/context", body, key=key)
    assert reply.status == 200, reply.text
    return reply.body["text"]


def texts(hits: list[Any]) -> list[str]:
    return [hit["text"] for hit in hits]


def holding(hits: list[Any], part: str) -> list[Any]:
    return [hit for hit in hits if part in hit["text"]]


# the cases ---------------------------------------------------------------------------------------


def test_noise_cases_are_those_that_were_frozen() -> None:
    assert hashlib.sha256(CASES_FILE.read_bytes()).hexdigest() == CASES_SHA256
    assert len({case["name"] for case in CASES}) == 20


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_noise_case_in_recall_and_context(gateway: Gateway, key: str, case: Any) -> None:
    store(gateway, key, list(list_events(case)))
    hits = recall(gateway, key, case["question"])["hits"]
    hit_texts = texts(hits)
    if "first" in case:
        assert holding(hits[:3], case["first"]), hit_texts
    if "once" in case:
        (one,) = holding(hits, case["once"])
        assert one["similar"]["count"] == case["similar"]
        assert len(one["similar"]["event_ids"]) == min(case["similar"], 20)
    if "once_any_case" in case:
        same_hits = [hit for hit in hits if case["folded"] in " ".join(hit["text"].lower().split())]
        assert [hit["similar"]["count"] for hit in same_hits] == [case["similar"]], hit_texts
    for part in case.get("apart", ()):
        assert holding(hits, part), hit_texts
    if "order" in case:
        places = [next(n for n, t in enumerate(hit_texts) if part in t) for part in case["order"]]
        assert places == sorted(places), hit_texts
        assert places[0] == 0, hit_texts
    if "speakers" in case:
        assert {hit["speaker"] for hit in hits} >= set(case["speakers"])
    if "ats" in case:
        assert {hit["occurred_at"][:10] for hit in hits} >= set(case["ats"])
    if "filtered" in case:
        by_filter = case["filtered"]
        filter_hits = recall(gateway, key, case["question"], **by_filter["body"])["hits"]
        assert len(holding(filter_hits, by_filter["text"])) == by_filter["count"], texts(
            filter_hits
        )
    block = read_context(gateway, key, case["question"])
    for part in case.get("block", ()):
        assert part in block
    for part in case.get("not_block", ()):
        assert part not in block


# a tool's logs -----------------------------------------------------------------------------------


def test_noise_near_duplicates_of_sixty_logs_share_one_place(gateway: Gateway, key: str) -> None:
    """Sixty logs in the session of one sentence, which they share most words with (report F-28)."""
    events = [json.loads(line) for line in LOGS.read_text().splitlines()]
    store(gateway, key, events)
    question = "Which region do we deploy to, and why?"
    hits = recall(gateway, key, question)["hits"]
    assert holding(hits[:3], "We deploy to Stockholm"), texts(hits)
    (log,) = [hit for hit in hits if hit["similar"]]
    assert log["similar"]["count"] == 59
    block = read_context(gateway, key, question)
    assert "We deploy to Stockholm" in block
    assert "(tool, and 59 more like it)" in block
    step = recall(gateway, key, "what did step 7 check?")["hits"]
    assert "step 7: checking region" in step[0]["text"]
    asked_for = recall(gateway, key, question, type="observation", limit=100)["hits"]
    assert len(asked_for) == 60, "a filter finds every log"
    assert log["occurred_at"] == max(hit["occurred_at"] for hit in asked_for)
    everything = recall(gateway, key, question, min_relevance=0, limit=100)["hits"]
    assert len(everything) == 61


def test_noise_of_varied_logs_does_not_make_a_sentence_seem_far(gateway: Gateway, key: str) -> None:
    """No two lines are near-duplicates, and each is nearer to the question than the sentence."""
    rooms = ("attic", "cellar", "kitchen", "stable", "barn", "office", "garage", "porch")
    states = ("opened", "closed", "jammed", "rattled", "silent", "warm")
    sentence = "Leave whatever the sensor in the hayloft says, Pim cut its wire."
    event = {**WRITERS["ann"], "participants": [ANN, HELPER], "content": sentence}
    logs = [
        {
            **WRITERS["tool"],
            "participants": [ANN, HELPER],
            "content": f"sensor of the {room}: alarm, window {state}, sent to {room} panel",
        }
        for room in rooms
        for state in states
    ]
    store(gateway, key, [*logs[:20], event, *logs[20:]])
    hits = recall(gateway, key, "Which sensor's alarm can be ignored, and why?")["hits"]
    assert holding(hits[:3], "Pim cut its wire"), texts(hits)


def test_noise_names_only_near_duplicates_that_the_reader_sees(gateway: Gateway, key: str) -> None:
    """The same tool logged for Ann and for Omar: neither learns of the other's logs."""
    for name, count in ((ANN, 4), (OMAR, 7)):
        store(
            gateway,
            key,
            [
                {
                    **WRITERS["tool"],
                    "participants": [name, HELPER],
                    "content": f"deploy {n} of the harbour service finished",
                }
                for n in range(count)
            ],
        )
    for name, count in ((ANN, 4), (OMAR, 7)):
        (hit,) = recall(gateway, key, "deploy of the harbour service", participants=[name])["hits"]
        assert hit["similar"]["count"] == len(hit["similar"]["event_ids"]) == count - 1


def test_noise_of_white_space_and_quotes_makes_no_other_text(gateway: Gateway, key: str) -> None:
    said = 'The ferry to Hesk leaves from berth 4, "behind the crane".'
    again = "the ferry to\u2009Hesk leaves\n from\u3000berth\x1d4, “behind the crane”!"
    events = [
        {**WRITERS["ann"], "participants": [ANN, HELPER], "content": text} for text in (said, again)
    ]
    store(gateway, key, events)
    (hit,) = recall(gateway, key, "Where does the ferry to Hesk leave?")["hits"]
    assert hit["similar"]["count"] == 1


def test_noise_of_erased_logs_is_not_named(gateway: Gateway, key: str) -> None:
    store(gateway, key, list(list_events(CASES[5])))
    hits = recall(gateway, key, "greenhouse probe")["hits"]
    (log,) = holding(hits, "degrees")
    erased_id = log["similar"]["event_ids"][0]
    eraser = gateway.key(rights=("read", "write", "erase"))
    reply = gateway.call("DELETE", f"/api/v1/events/{erased_id}", key=eraser)
    assert reply.status in (200, 202, 204), reply.text
    (log,) = holding(recall(gateway, key, "greenhouse probe")["hits"], "degrees")
    assert log["similar"]["count"] == 18
    assert erased_id not in log["similar"]["event_ids"]


# what says nothing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "by_agent", "by_person"),
    [
        ("Where are the keys?", True, True),
        ("Where are the keys? Who has them?", True, True),
        ("Wo ist der Schlüssel?", True, True),
        ("¿Dónde están las llaves?", True, True),
        ("I start in Kiel next week, is that too early?", False, False),
        ("Did you know that we moved to Kiel?", False, False),
        ("Is it true that the boat cost 900 euros?", False, False),
        ("Could you book the ferry to Gotland?", False, False),
        ("鍵はどこですか？", True, True),  # noqa: RUF001
        ("I don’t know.", True, False),  # noqa: RUF001
        ("Sorry, I do not know which wine goes with the roast.", True, False),
        ("No stored event answers the question.", True, False),
        ("I have no information about that. Could you tell me more?", True, False),
        ("I couldn't find any stored notes about the boat.", True, False),
        ("Nothing about the boat is known.", True, False),
        ("I don't know the day, but Ann said the keys are in the cellar.", False, False),
        ("I don't know the day. Ann has the keys.", False, False),
        ("The keys are in the cellar. Do you need them?", False, False),
        ("I know no better place than Kiel.", False, False),
        ("Do you have the keys? The cellar is locked.", False, False),
        ("", False, False),
    ],
)
def test_noise_text_that_says_nothing_is_told(
    scratch_db: ScratchDatabase, text: str, by_agent: bool, by_person: bool
) -> None:
    statement = "select says_nothing(%s, true), says_nothing(%s, false)"
    assert scratch_db.rows(statement, text, text) == [(by_agent, by_person)]


def test_noise_of_a_question_asked_before_ranks_last(gateway: Gateway, key: str) -> None:
    question = "Which lens does the lighthouse of Holm use?"
    events = [{**WRITERS["ann"], "participants": [ANN, HELPER], "content": "We had fish today."}]
    store(gateway, key, events)
    repeats = [{**WRITERS["ann"], "participants": [ANN, HELPER], "content": question}]
    store(gateway, key, repeats * 3)
    answer = recall(gateway, key, question, min_relevance=0)
    assert texts(answer["hits"])[0] == "We had fish today."
    assert len(answer["hits"]) == 4, "it is left out by no filter"
    block = read_context(gateway, key, question)
    assert "We had fish today." in block
    assert "Which lens" not in block
    assert "Which lens" in read_context(gateway, key, question, min_relevance=0)


def test_noise_alone_still_stands_in_a_context(gateway: Gateway, key: str) -> None:
    question = "Which lens does the lighthouse of Holm use?"
    repeats = [{**WRITERS["ann"], "participants": [ANN, HELPER], "content": question}]
    store(gateway, key, repeats)
    assert "Which lens" in read_context(gateway, key, question)


# a small budget ----------------------------------------------------------------------------------


def test_noise_of_a_small_budget_is_no_empty_answer(gateway: Gateway, key: str) -> None:
    """One long hit and a budget below it (report F-26)."""
    long = "我们把生产环境部署在斯德哥尔摩，因为合同要求数据留在瑞典。" * 10  # noqa: RUF001
    event = {**WRITERS["ann"], "participants": [ANN, HELPER], "content": long}
    store(gateway, key, [event])
    answer = recall(gateway, key, long[:14], max_tokens=80)
    (hit,) = answer["hits"]
    assert hit["text"][:-1] == long[: len(hit["text"]) - 1]
    assert hit["text"].endswith("…")
    assert 310 <= len(hit["text"].encode()) <= 320
    assert (answer["did_not_fit"], answer["degraded"]) == (0, ["cut_by_budget"])
    store(gateway, key, [{**event, "content": "我们把生产环境部署在斯德哥尔摩。"}])
    answer = recall(gateway, key, long[:14], max_tokens=80)
    assert texts(answer["hits"]) == ["我们把生产环境部署在斯德哥尔摩。"]
    assert (answer["did_not_fit"], answer["degraded"]) == (1, [])


# which texts are near-duplicates -----------------------------------------------------------------


def is_near(one: str, other: str, author: str | None, *, keeps_numbers: bool = False) -> bool:
    keys = [
        make_near_duplicate_key(text, author, date(2026, 5, day), keeps_numbers=keeps_numbers)
        for day, text in enumerate((one, other), 1)
    ]
    return bool(keys[0]) and keys[0] == keys[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("step 7 took 1.5 s at 10:00:01", "step 12  took 31 s\nat 2026-04-01"),
        ("merged 9f1c0ffee1aa", "Merged 77ab12cd90"),
        ("job 0b7e4c1e-30a1-4f7e-9d3b-9c1f0a5d2e11 done", "job 7 done"),
    ],
)
def test_noise_near_duplicate_of_a_tool_ignores_numbers(one: str, other: str) -> None:
    assert is_near(one, other, "tool")
    assert not is_near(one, other, None)


def test_noise_question_about_dates_keeps_an_agents_dates_apart(gateway: Gateway, key: str) -> None:
    case = CASES[19]
    store(gateway, key, list(list_events(case)))
    for question, count in (
        ("When is the ferry to Gotland booked?", 2),
        ("Which cabin of the ferry to Gotland is booked?", 1),
        ("Is the ferry to Gotland booked for 3 July?", 2),
    ):
        assert len(holding(recall(gateway, key, question)["hits"], "Gotland")) == count, question


def test_noise_near_duplicate_of_an_agent_keeps_asked_numbers() -> None:
    one, other = "I have read 40 pages of the manual.", "I have read 60 pages of the manual."
    assert is_near(one, other, "agent")
    assert not is_near(one, other, "agent", keeps_numbers=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("We meet on 3 May in Oslo.", "We meet on 9 May in Oslo."),
        ("It is written in C++ mostly.", "It is written in C# mostly."),
        ("It is 5 degrees in the barn", "It is -5 degrees in the barn"),
        ("The rate is 3.5 percent now", "The rate is 35 percent now"),
        ("Is the gate to the yard shut?", "Is the gate to the yard shut"),
        ("Yes, that one.", "Yes, that one."),
        ("I am in Kiel tomorrow with Omar.", "I am in Kiel tomorrow with Omar."),
    ],
)
def test_noise_near_duplicate_of_a_person_is_no_other_fact(one: str, other: str) -> None:
    assert not is_near(one, other, None)


def test_noise_near_duplicate_of_a_person_ignores_punctuation() -> None:
    assert is_near("The code is “4711”, Omar!", "the code  is 4711 Omar", None)


def test_noise_near_duplicate_of_a_tool_needs_a_word() -> None:
    assert not is_near("17", "42", "tool")
