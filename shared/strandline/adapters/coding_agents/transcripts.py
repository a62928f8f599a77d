"""Reads what was said from the transcripts of Claude Code and Codex: JSON, a line for each step.

Only what the person and the agent said to each other is taken: no output of tools unless it is
asked for, no thoughts, nothing that the agent's own program wrote, as instructions, summaries and
what hooks added. A message has the id that the transcript gives it, so that it is the same one
however often it is read, also in a session that was forked from another.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, BinaryIO, NamedTuple, cast

from strandline.adapters.coding_agents.spoken_texts import take_spoken_text
from strandline.adapters.coding_agents.spool import TranscriptPlace
from strandline.moments import parse_moment
from strandline.secret_scrubbing import scrub_secrets

Json = Mapping[str, Any]
_MAX_LINE_BYTES = 32 * 1024 * 1024
"""A longer line, as of a large image, is passed over."""
_MAX_MESSAGE_CHARS, _MAX_TOOL_CHARS = 500_000, 16_000
"""Of a longer text the middle is left out."""
_MAX_SCRUBBED_CHARS = 2_000_000
_MARK_BYTES = 64


class TranscriptPart(NamedTuple):
    """What a part of a transcript says."""

    events: list[dict[str, Any]]
    """As an append takes them."""
    place: TranscriptPlace
    """Where the next part begins."""
    scrub_counts: dict[str, int]
    unreadable_lines: int
    is_last: bool
    """Whether nothing more is there yet."""


class _Message(NamedTuple):
    key: str
    role: str
    type: str
    text: str


def read_transcript_part(
    place: TranscriptPlace, *, max_events: int, max_bytes: int
) -> TranscriptPart:
    """The next messages of a transcript, at most so many, from so many bytes or one line. A line
    without an end is left until it has one. Raises OSError."""
    events: list[dict[str, Any]] = []
    scrub_counts: dict[str, int] = {}
    unreadable = 0
    with open(place.path, "rb") as file:
        start = _find_resume_offset(file, place)
        end = start
        for line, end_of_line in _read_whole_lines(file, start):
            messages, is_readable = _read_line(line, end, place)
            unreadable += not is_readable
            for message, moment, channel in messages:
                if channel == "codex" and _is_summary(message, file, end_of_line):
                    continue
                events.append(_make_event(place, message, moment, channel, scrub_counts))
            end = end_of_line
            if len(events) >= max_events or end - start >= max_bytes:
                break
        else:
            return TranscriptPart(
                events, _advance_place(place, file, end), scrub_counts, unreadable, is_last=True
            )
        return TranscriptPart(
            events, _advance_place(place, file, end), scrub_counts, unreadable, is_last=False
        )


def _find_resume_offset(file: BinaryIO, place: TranscriptPlace) -> int:
    """Where to go on: at the beginning, if the file is not the one that was read."""
    size = file.seek(0, 2)
    if place.offset > size or _read_mark(file, place.offset) != place.mark:
        return 0
    return place.offset


def _read_mark(file: BinaryIO, offset: int) -> str:
    start = max(0, offset - _MARK_BYTES)
    file.seek(start)
    return f"{zlib.crc32(file.read(offset - start)):08x}" if offset else ""


def _advance_place(place: TranscriptPlace, file: BinaryIO, offset: int) -> TranscriptPlace:
    return place._replace(offset=offset, mark=_read_mark(file, offset))


def _read_whole_lines(file: BinaryIO, start: int) -> Iterator[tuple[bytes, int]]:
    """Lines that have an end, with the place after each; a line that is too long is empty."""
    file.seek(start)
    end = start
    while line := file.readline(_MAX_LINE_BYTES):
        size = len(line)
        if not line.endswith(b"\n") and size == _MAX_LINE_BYTES:
            line = b""
            while piece := file.readline(_MAX_LINE_BYTES):
                size += len(piece)
                if piece.endswith(b"\n"):
                    break
            else:
                return
        elif not line.endswith(b"\n"):
            return
        end += size
        yield line, end


def _read_line(
    line: bytes, offset: int, place: TranscriptPlace
) -> tuple[list[tuple[_Message, str | None, str]], bool]:
    """The messages of a line, each with its time and its channel, and whether it can be read."""
    if not line.strip():
        return [], bool(line)
    step = _parse_step(line)
    if step is None:
        return [], False
    payload = step.get("payload")
    if isinstance(payload, dict):
        channel = "codex"
        messages = _list_codex_messages(step, cast("Json", payload), offset, place)
    else:
        channel = "claude-code"
        messages = _list_claude_messages(step, wants_tools=place.wants_tools)
    moment = _get_valid_timestamp(step.get("timestamp"))
    return [(message, moment, channel) for message in messages], True


def _parse_step(line: bytes) -> Json | None:
    """The object of a line; None where it holds none."""
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("Json", value) if isinstance(value, dict) else None


def _get_valid_timestamp(value: object) -> str | None:
    """The time of a line, as it stands there; None where it is no time, which no message is refused
    for."""
    try:
        parse_moment(value)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


# Claude Code --------------------------------------------------------------------------------------

_NOT_SAID = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage")


def _list_claude_messages(step: Json, *, wants_tools: bool) -> Iterator[_Message]:
    role, message, key = step.get("type"), step.get("message"), step.get("uuid")
    if not isinstance(key, str) or any(step.get(name) for name in _NOT_SAID):
        return
    if not _is_from_person(step.get("origin")):
        return
    if role == "attachment":
        yield from _list_queued_prompts(step.get("attachment"), key)
    if role not in ("user", "assistant") or not isinstance(message, dict):
        return
    fields = cast("Json", message)
    if fields.get("model") == "<synthetic>":
        return
    blocks = _list_blocks(fields.get("content"))
    texts = [_text_of(block) for block in blocks if block.get("type") == "text"]
    if text := _join_texts(texts, is_user=role == "user"):
        yield _Message(key, "user" if role == "user" else "agent", "message", text)
    if not wants_tools:
        return
    for number, block in enumerate(blocks):
        if block.get("type") == "tool_use":
            call = f"{block.get('name')} {_to_text_or_json(block.get('input'))}"
            yield _Message(f"{key}#{number}", "agent", "action", call)
        elif block.get("type") == "tool_result":
            output = _text_of_output(block.get("content"))
            yield _Message(f"{key}#{number}", "agent", "observation", output)


def _list_queued_prompts(attachment: object, key: str) -> Iterator[_Message]:
    """What the person typed while the agent was at work, of which there is mostly no other line. It
    has the id of that line, should there be one."""
    fields: Json = cast("Json", attachment) if isinstance(attachment, dict) else {}
    source = fields.get("source_uuid")
    if fields.get("type") != "queued_command" or fields.get("isMeta"):
        return
    if fields.get("commandMode", "prompt") != "prompt":
        return
    if not _is_from_person(fields.get("origin")):
        return
    texts = [_text_of(block) for block in _list_blocks(fields.get("prompt"))]
    if text := _join_texts(texts, is_user=True):
        yield _Message(source if isinstance(source, str) else key, "user", "message", text)


def _is_from_person(origin: object) -> bool:
    """Whether an origin is a person's, or none is given: the agent's answers have none."""
    return not isinstance(origin, dict) or cast("Json", origin).get("kind") == "human"


# Codex --------------------------------------------------------------------------------------------

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


_SUMMARY_LINES = 4
"""A compaction is written so many lines behind its summary at the most."""


def _is_summary(message: _Message, file: BinaryIO, offset: int) -> bool:
    """Whether a message of Codex is what it wrote for a compaction: the lines from the offset say
    so. The file stands at the offset before and after."""
    if (message.role, message.type) != ("agent", "message"):
        return False
    lines = [line for line, _ in islice(_read_whole_lines(file, offset), _SUMMARY_LINES)]
    file.seek(offset)
    for line in lines:
        step = _parse_step(line) if b'"compacted"' in line else None
        payload = step.get("payload") if step and step.get("type") == "compacted" else None
        if isinstance(payload, dict):
            return str(cast("Json", payload).get("message")).endswith(message.text.strip())
    return False


def _list_codex_messages(
    step: Json, item: Json, offset: int, place: TranscriptPlace
) -> Iterator[_Message]:
    if step.get("type") != "response_item":
        return
    kind, role = item.get("type"), item.get("role")
    passthrough = item.get("internal_chat_message_metadata_passthrough")
    details: Json = cast("Json", passthrough) if isinstance(passthrough, dict) else {}
    turn = details.get("turn_id") or place.session_id
    name = item.get("id") or item.get("call_id") or f"@{offset}"
    if kind == "message" and role in ("user", "assistant"):
        blocks = _list_blocks(item.get("content"))
        texts = [_text_of(block) for block in blocks]
        kinds: list[Any] = details.get("content_item_kinds") or []
        if role == "user" and len(kinds) == len(texts):
            flags = [str(one).startswith("user.") for one in kinds]
            texts = [text for text, is_said in zip(texts, flags, strict=True) if is_said]
        if text := _join_texts(texts, is_user=role == "user"):
            # A provider's ids need not be unique: the text tells messages of one id apart.
            number = zlib.crc32(scrub_secrets(text).text.encode("utf-8", "replace"))
            key = f"{turn}/{name}/{number:08x}"
            yield _Message(key, "user" if role == "user" else "agent", "message", text)
    elif place.wants_tools and kind in _CALLS:
        call_input = item.get("arguments") or item.get("input") or item.get("action")
        call = f"{item.get('name') or kind} {_to_text_or_json(call_input)}"
        yield _Message(f"{turn}/{name}/call", "agent", "action", call)
    elif place.wants_tools and kind in _OUTPUTS:
        output = _text_of_output(item.get("output"))
        yield _Message(f"{turn}/{name}/output", "agent", "observation", output)


# Texts --------------------------------------------------------------------------------------------


def _list_blocks(content: object) -> list[Json]:
    """The blocks of a content, which may be a text alone."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    return [cast("Json", block) for block in blocks if isinstance(block, dict)]


def _text_of(block: Json) -> str:
    text = block.get("text")
    return text if isinstance(text, str) else ""


def _to_text_or_json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text_of_output(content: object) -> str:
    """What a tool gave."""
    blocks = [_text_of(block) for block in _list_blocks(content)]
    return "\n".join(filter(None, blocks)) or _to_text_or_json(content)


def _shorten(text: str, most: int) -> str:
    """The beginning and the end of a text."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\n…\n{text[-half:]}"


def _join_texts(texts: list[str], *, is_user: bool) -> str:
    own = [take_spoken_text(text) for text in texts] if is_user else texts
    return "\n\n".join(text for text in own if text.strip())


def _make_event(
    place: TranscriptPlace,
    message: _Message,
    moment: str | None,
    channel: str,
    scrub_counts: dict[str, int],
) -> dict[str, Any]:
    clean = scrub_secrets(_shorten(message.text, _MAX_SCRUBBED_CHARS))
    for name, count in clean.counts.items():
        scrub_counts[name] = scrub_counts.get(name, 0) + count
    most = _MAX_MESSAGE_CHARS if message.type == "message" else _MAX_TOOL_CHARS
    text = _shorten(clean.text, most).replace("\x00", "\ufffd")
    user, agent = place.participants[:2]
    return {
        "participants": place.participants,
        "role": message.role,
        "speaker": user if message.role == "user" else agent,
        "type": message.type,
        "content": text.encode("utf-8", "replace").decode(),
        "session_id": place.session_id,
        "channel": channel,
        "source_event_key": message.key[:512],
        **({"occurred_at": moment} if moment else {}),
        **({"metadata": {"scrubbed": clean.counts}} if clean.counts else {}),
    }
