"""Build prompts: instructions from versioned files, and memory as quoted, bounded, masked data."""

import functools
import importlib.resources
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from strandline.llm.types import (
    MessageToAnswer,
    PromptEvent,
    RunSummary,
    TopicTreePart,
    TopicWalkOption,
)

type AnswerTask = Literal["answer", "reply"]
"""Tasks without a fallback: a question to answer, a message to reply to."""
type TaskName = Literal[
    "answer",
    "reply",
    "continues",
    "summarise",
    "merge",
    "topic",
    "entities",
    "overview",
    "walk",
    "contradicts",
    "extract",
]

PROMPT_VERSIONS: Mapping[TaskName, int] = {
    "continues": 2,
    "summarise": 1,
    "merge": 1,
    "topic": 1,
    "entities": 1,
    "overview": 1,
    "walk": 1,
    "contradicts": 1,
    "extract": 1,
}
"""The version in use of each prompt. A prompt that was used is never edited but gets a new version:
results are stored with the version that they came from."""
ANSWER_VERSIONS: Mapping[AnswerTask, int] = {"answer": 1, "reply": 1}
"""The versions in use of the prompts of answers."""
_DATA_PROMPT, _RECALLED_PROMPT = "data.1", "recalled.1"
_MAX_EVENTS = 120
_UNKNOWN_SPEAKER = "somebody else"
_PARTICIPANT_ID = re.compile(r"\b(?:user|agent):[^\s,;()\"'<>]*[^\s,;()\"'<>.:!?]")


@dataclass(frozen=True)
class Prompt:
    """A task's instructions."""

    name: str
    """As in `summarise/1`."""
    text: str


@functools.cache
def load_prompt(task_name: TaskName) -> Prompt:
    """A task's prompt, followed by the rules on how to treat the data below it."""
    if task_name == "answer" or task_name == "reply":
        version, rules = ANSWER_VERSIONS[task_name], _read_prompt_file(_RECALLED_PROMPT)
    else:
        version, rules = PROMPT_VERSIONS[task_name], _read_prompt_file(_DATA_PROMPT)
    return Prompt(
        f"{task_name}/{version}", f"{_read_prompt_file(f'{task_name}.{version}')}\n{rules}"
    )


def _read_prompt_file(name: str) -> str:
    folder = importlib.resources.files("strandline").joinpath("llm/prompt_files")
    return folder.joinpath(f"{name}.md").read_text("utf-8")


@dataclass(frozen=True)
class PromptLimits:
    """How many characters of memory a prompt holds: of one event, and in all."""

    event_characters: int
    total_characters: int


@dataclass(frozen=True)
class PromptData:
    """The memory that is part of a prompt."""

    json_lines: str
    """As it is sent."""
    text: str
    """Its plain text: an answer may name nothing else."""

    def __add__(self, other: "PromptData") -> "PromptData":
        return PromptData(f"{self.json_lines}\n{other.json_lines}", f"{self.text}\n{other.text}")


def render_events(
    tag: str, events: Sequence[PromptEvent], participants: Collection[str], limits: PromptLimits
) -> PromptData:
    """Render events as one JSON object a line. A speaker who is not a participant of the scope is
    not named. If the text is too long, the longest events are cut first; of more than 120 events
    those in the middle are left out."""
    return _render_excerpt_of_events(tag, [(event, {}) for event in events], participants, limits)


def render_numbered_events(
    tag: str, events: Sequence[PromptEvent], participants: Collection[str], limits: PromptLimits
) -> PromptData:
    """Render events as `render_events` does, each with its number, from 1, by which an answer cites
    it."""
    pairs = [(event, {"number": number}) for number, event in enumerate(events, 1)]
    return _render_excerpt_of_events(tag, pairs, participants, limits)


def _render_excerpt_of_events(
    tag: str,
    events: Sequence[tuple[PromptEvent, Mapping[str, object]]],
    participants: Collection[str],
    limits: PromptLimits,
) -> PromptData:
    half_count = _MAX_EVENTS // 2
    excerpt = (
        events if len(events) <= _MAX_EVENTS else [*events[:half_count], *events[-half_count:]]
    )
    max_characters = min(
        limits.event_characters,
        _compute_fair_max_length(
            [len(event.text) for event, _ in excerpt], limits.total_characters
        ),
    )
    lines = [_render_event(event, participants, max_characters, more) for event, more in excerpt]
    if len(excerpt) < len(events):
        lines.insert(half_count, _to_json_line({"left_out": len(events) - len(excerpt)}))
    texts = [event.text[:max_characters] for event, _ in excerpt]
    return PromptData(_wrap_in_tag(tag, lines), "\n".join([*texts, *participants]))


def render_summary(tag: str, summary: RunSummary, limits: PromptLimits) -> PromptData:
    """Render a summary as one JSON object."""
    text = summary.summary[: limits.total_characters // 2]
    return PromptData(
        _wrap_in_tag(tag, [_to_json_line({"summary": text, "importance": summary.importance})]),
        text,
    )


def render_topic_tree_parts(
    tag: str, parts: Sequence[TopicTreePart], limits: PromptLimits
) -> PromptData:
    """Render parts of a topic tree as one JSON object a line. If the text is too long, the longest
    summaries are cut first."""
    summaries = [part.summary or "" for part in parts]
    max_characters = _compute_fair_max_length(
        [len(text) for text in summaries], limits.total_characters // 2
    )
    lines = [
        _to_json_line(
            {
                "from": part.started_at.isoformat(timespec="minutes"),
                "to": part.last_event_at.isoformat(timespec="minutes"),
                "events": part.event_count,
                "topic": part.topic,
                "summary": text[:max_characters],
            }
        )
        for part, text in zip(parts, summaries, strict=True)
    ]
    texts = [f"{part.topic or ''}\n{part.summary or ''}" for part in parts]
    return PromptData(_wrap_in_tag(tag, lines), "\n".join(texts))


def render_walk_options(
    question: str, options: Sequence[TopicWalkOption], limits: PromptLimits
) -> PromptData:
    """Render a question and numbered parts of a topic tree, as one JSON object a line. Ids of
    anyone who is not a participant of a part's scope are not shown. If the text is too long, the
    longest summaries are cut first."""
    asked_for = question[: limits.event_characters]
    texts = [
        _mask_other_participants(option.part.summary or "", option.participants)
        for option in options
    ]
    max_characters = min(
        limits.event_characters,
        _compute_fair_max_length([len(text) for text in texts], limits.total_characters // 2),
    )
    lines = [
        _to_json_line(
            {
                "number": number,
                "from": option.part.started_at.date().isoformat(),
                "to": option.part.last_event_at.date().isoformat(),
                "events": option.part.event_count,
                "topic": _mask_other_participants(option.part.topic or "", option.participants)[
                    :200
                ]
                or None,
                "summary": text[:max_characters],
            }
        )
        for number, (option, text) in enumerate(zip(options, texts, strict=True), 1)
    ]
    question_lines = _wrap_in_tag("question", [_to_json_line({"text": asked_for})])
    return PromptData(f"{question_lines}\n{_wrap_in_tag('parts', lines)}", asked_for)


def render_statements(
    statements: Sequence[str], participants: Collection[str], limits: PromptLimits
) -> PromptData:
    """Render statements as one JSON object a line. Ids of anyone who is not one of the participants
    are not shown."""
    texts = [
        _mask_other_participants(text[: limits.event_characters], participants)
        for text in statements
    ]
    lines = [_to_json_line({"text": text}) for text in texts]
    return PromptData(_wrap_in_tag("statements", lines), "\n".join(texts))


def render_memories_and_question(
    block: str, message: MessageToAnswer, participants: Collection[str], limits: PromptLimits
) -> PromptData:
    """Render a block of recalled memories as it is, and the question or message that it was
    recalled for, as one JSON object. The block is bounded by its budget of tokens."""
    fields: dict[str, object] = {
        "at": message.said_at.isoformat(timespec="minutes"),
        "from": message.speaker,
        "to": message.agent,
        "persona": message.persona,
        "text": message.text[: limits.total_characters],
    }
    line = _to_json_line({name: value for name, value in fields.items() if value is not None})
    return PromptData(
        f"{block}\n{_wrap_in_tag(message.tag, [line])}",
        "\n".join([block, message.text, *participants]),
    )


def _mask_other_participants(text: str, participants: Collection[str]) -> str:
    return _PARTICIPANT_ID.sub(
        lambda match: match[0] if match[0] in participants else _UNKNOWN_SPEAKER, text
    )


def _render_event(
    event: PromptEvent,
    participants: Collection[str],
    max_characters: int,
    more: Mapping[str, object],
) -> str:
    is_participant = event.speaker is None or event.speaker in participants
    fields: dict[str, object] = {
        **more,
        "at": event.said_at.isoformat(timespec="minutes"),
        "speaker": event.speaker if is_participant else _UNKNOWN_SPEAKER,
        "role": event.role,
        "type": event.type,
        "text": event.text[:max_characters],
    }
    return _to_json_line(fields | ({"cut": True} if len(event.text) > max_characters else {}))


def _compute_fair_max_length(lengths: Sequence[int], budget: int) -> int:
    """The maximum length of each text so that all together fit into `budget`: what short texts
    leave is shared by the others."""
    remaining = budget
    for position, length in enumerate(sorted(lengths)):
        share = remaining // (len(lengths) - position)
        if length > share:
            return share
        remaining -= length
    return budget


def _wrap_in_tag(tag: str, lines: Sequence[str]) -> str:
    return "\n".join([f"<{tag}>", *lines, f"</{tag}>"])


def _to_json_line(fields: Mapping[str, object]) -> str:
    """One line of JSON without angle brackets, so that no text can close the tag around it or open
    another. A lone surrogate, which no request can carry, becomes a question mark."""
    text = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace").decode()
    return "".join(_escape_markup_letters(text))


def _escape_markup_letters(text: str) -> Iterator[str]:
    # Line separators that JSON does not escape could make one text look like two lines.
    for letter in text:
        yield f"\\u{ord(letter):04x}" if letter in "<>&\x7f\x85\u2028\u2029" else letter
