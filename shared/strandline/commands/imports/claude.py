"""Conversations of Claude's conversations.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from strandline.commands.imports.items import (
    Event,
    ImportOptions,
    Items,
    Json,
    LastMoment,
    LeftOut,
    NewEvent,
    Note,
    Refusal,
    as_identity,
    as_list,
    as_object,
    as_text,
    make_event,
    parse_iso,
    quote_name,
)

_NO_PARENT = "00000000-0000-4000-8000-000000000000"
_PLACEHOLDER = re.compile(
    r"\s*```\s*This block is not supported on your current device yet\.\s*```\s*"
)
_SPEECH = ("text", "voice_note")
_LEFT_OUT = {
    "thinking": "thoughts",
    "redacted_thinking": "thoughts",
    "image": "pictures without text",
    "token_budget": "budgets",
    "flag": "flags",
}


def read_claude(conversation: Json, options: ImportOptions, place: str) -> Items:
    """The messages of a conversation."""
    messages = as_list(conversation.get("chat_messages"))
    identity = as_identity(conversation.get("uuid"))
    title = as_text(conversation.get("name")) or identity or ""
    place = f"{place} {quote_name(title)}" if title else place
    if not messages:
        yield LeftOut("empty conversations")
        return
    if identity is None:
        yield Refusal(place, "it has no uuid")
        return
    leaf = as_identity(conversation.get("current_leaf_message_uuid"))
    branch, is_circle = _find_branch(messages, leaf)
    if is_circle:
        yield Note(f"{place}: its messages run in a circle, which ends where it closes")
    clock = LastMoment(parse_iso(conversation.get("created_at")))
    for position in branch:
        message, where = as_object(messages[position]), f"{place}, message {position + 1}"
        key = as_identity(message.get("uuid"))
        if key is None or not isinstance(message.get("sender"), str):
            yield Refusal(where, "uuid or sender is no text")
        else:
            yield from _read_message(message, key, identity, options, where, clock)
    if len(branch) < len(messages):
        yield LeftOut("messages of other branches", len(messages) - len(branch))


def _find_branch(messages: Sequence[Any], leaf: str | None) -> tuple[list[int], bool]:
    """The positions from the first message to the last one shown, and whether they run in a
    circle. A message whose parent is not there follows the one before it."""
    ids = [as_identity(as_object(message).get("uuid")) for message in messages]
    places = {identity: n for n, identity in enumerate(ids) if identity}
    parents = list[int | None]()
    for position, message in enumerate(messages):
        parent = as_object(message).get("parent_message_uuid")
        before = position - 1 if position and parent != _NO_PARENT else None
        parents.append(places.get(parent, before) if isinstance(parent, str) else before)
    position = places.get(leaf) if leaf else None
    if position is None:
        leaves = {*range(len(messages))} - {*parents}
        times = [parse_iso(as_object(message).get("created_at")) or "" for message in messages]
        position = max(leaves or range(len(messages)), key=lambda n: (times[n], n))
    branch = dict[int, None]()
    while position is not None and position not in branch:
        branch[position] = None
        position = parents[position]
    return [*reversed(branch)], position is not None


def _read_message(
    message: Json, key: str, identity: str, options: ImportOptions, place: str, clock: LastMoment
) -> Items:
    """What a message says, and each thing beside it: an attachment, a tool's call, its result. The
    blocks hold; `text` is for messages without any, because it has placeholders for blocks."""
    speaker: Event = {"role": "user" if message["sender"] == "human" else "agent"}
    times = clock.at(parse_iso(message.get("created_at")))
    count = 0
    for suffix, found in _read_contents(message):
        count += 1
        if isinstance(found, LeftOut):
            yield found
            continue
        fields = speaker | found | times
        yield NewEvent(make_event("claude", identity, f"{key}{suffix}", options, **fields), place)
    if not count:
        names = [as_object(file).get("file_name") for file in as_list(message.get("files"))]
        yield LeftOut("files without text" if names else "empty messages")


def _read_contents(message: Json) -> Iterator[tuple[str, Event | LeftOut]]:
    """Events without what they have in common, and the end of each one's key."""
    blocks = [as_object(block) for block in as_list(message.get("content"))]
    if not blocks:
        blocks = [{"type": "text", "text": message.get("text")}]
    has_speech = False
    position = 0
    for is_speech, group in groupby(blocks, key=lambda block: block.get("type") in _SPEECH):
        run = [*group]
        if is_speech:
            texts = [_PLACEHOLDER.sub("\n", as_text(block.get("text"))).strip() for block in run]
            text = "\n".join(filter(None, texts))
            if text:
                yield f"#{position}" if has_speech else "", {"content": text}
                has_speech = True
            elif any(as_text(block.get("text")) for block in run):
                yield "", LeftOut("placeholders")
        else:
            for offset, block in enumerate(run):
                yield f"#{position + offset}", _read_block(block)
        position += len(run)
    for number, attachment in enumerate(map(as_object, as_list(message.get("attachments")))):
        yield f"#attachment-{number}", _read_attachment(attachment)


def _read_attachment(attachment: Json) -> Event | LeftOut:
    name, text = (as_text(attachment.get(n)) for n in ("file_name", "extracted_content"))
    if not text:
        return LeftOut("files without text")
    return {"content": f"{name}\n{text}" if name else text} | (
        {"metadata": {"file": name}} if name else {}
    )


def _read_block(block: Json) -> Event | LeftOut:
    kind = as_text(block.get("type"))
    if kind == "tool_use":
        text, event_type = _describe_call(block.get("input")), "action"
    elif kind == "tool_result":
        text, event_type = _join_result(block.get("content")), "observation"
    else:
        return LeftOut(_LEFT_OUT.get(kind, f"blocks of type {kind}"))
    if not text:
        return LeftOut("empty calls and results of tools")
    tool = as_text(block.get("name"))
    return {"role": "agent", "type": event_type, "content": text} | (
        {"metadata": {"tool": tool}} if tool else {}
    )


def _describe_call(value: object) -> str:
    """What a tool was called with; of an artifact its text as it is."""
    arguments = as_object(value)
    text = as_text(arguments.get("content"))
    if text:
        return "\n".join(filter(None, [as_text(arguments.get("title")), text]))
    return json.dumps(value, ensure_ascii=False) if value else ""


def _join_result(content: object) -> str:
    if isinstance(content, str):
        return content.strip()
    return "\n".join(filter(None, (as_text(as_object(b).get("text")) for b in as_list(content))))
