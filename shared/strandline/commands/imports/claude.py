"""Conversations of Claude's conversations.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from strandline.commands.imports.items import (
    AlterationNote,
    Event,
    ImportOptions,
    Items,
    Json,
    LastMessageTime,
    LeftOutItem,
    NewEvent,
    RefusedItem,
    id_text_or_none,
    iso_time_to_rfc3339,
    list_or_empty,
    make_conversation_event,
    object_or_empty,
    quote_shortened_name,
    stripped_text_or_empty,
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


def read_claude_conversation(conversation: Json, options: ImportOptions, place: str) -> Items:
    """The messages of a conversation."""
    messages = list_or_empty(conversation.get("chat_messages"))
    identity = id_text_or_none(conversation.get("uuid"))
    title = stripped_text_or_empty(conversation.get("name")) or identity or ""
    place = f"{place} {quote_shortened_name(title)}" if title else place
    if not messages:
        yield LeftOutItem("empty conversations")
        return
    if identity is None:
        yield RefusedItem(place, "it has no uuid")
        return
    leaf = id_text_or_none(conversation.get("current_leaf_message_uuid"))
    branch, is_circle = _find_shown_branch(messages, leaf)
    if is_circle:
        yield AlterationNote(f"{place}: its messages run in a circle, which ends where it closes")
    clock = LastMessageTime(iso_time_to_rfc3339(conversation.get("created_at")))
    for position in branch:
        message, where = object_or_empty(messages[position]), f"{place}, message {position + 1}"
        key = id_text_or_none(message.get("uuid"))
        if key is None or not isinstance(message.get("sender"), str):
            yield RefusedItem(where, "uuid or sender is no text")
        else:
            yield from _read_message(message, key, identity, options, where, clock)
    if len(branch) < len(messages):
        yield LeftOutItem("messages of other branches", len(messages) - len(branch))


def _find_shown_branch(messages: Sequence[Any], leaf: str | None) -> tuple[list[int], bool]:
    """The positions from the first message to the last one shown, and whether they run in a
    circle. A message whose parent is not there follows the one before it."""
    ids = [id_text_or_none(object_or_empty(message).get("uuid")) for message in messages]
    places = {identity: n for n, identity in enumerate(ids) if identity}
    parents = list[int | None]()
    for position, message in enumerate(messages):
        parent = object_or_empty(message).get("parent_message_uuid")
        before = position - 1 if position and parent != _NO_PARENT else None
        parents.append(places.get(parent, before) if isinstance(parent, str) else before)
    position = places.get(leaf) if leaf else None
    if position is None:
        leaves = {*range(len(messages))} - {*parents}
        times = [
            iso_time_to_rfc3339(object_or_empty(message).get("created_at")) or ""
            for message in messages
        ]
        position = max(leaves or range(len(messages)), key=lambda n: (times[n], n))
    branch = dict[int, None]()
    while position is not None and position not in branch:
        branch[position] = None
        position = parents[position]
    return [*reversed(branch)], position is not None


def _read_message(
    message: Json,
    key: str,
    identity: str,
    options: ImportOptions,
    place: str,
    clock: LastMessageTime,
) -> Items:
    """What a message says, and each thing beside it: an attachment, a tool's call, its result. The
    blocks hold; `text` is for messages without any, because it has placeholders for blocks."""
    speaker: Event = {"role": "user" if message["sender"] == "human" else "agent"}
    times = clock.make_time_field(iso_time_to_rfc3339(message.get("created_at")))
    count = 0
    for suffix, item in _iterate_partial_events(message):
        count += 1
        if isinstance(item, LeftOutItem):
            yield item
            continue
        fields = speaker | item | times
        yield NewEvent(
            make_conversation_event("claude", identity, f"{key}{suffix}", options, **fields),
            place,
            thread=identity,
        )
    if not count:
        names = [
            object_or_empty(file).get("file_name") for file in list_or_empty(message.get("files"))
        ]
        yield LeftOutItem("files without text" if names else "empty messages")


def _iterate_partial_events(message: Json) -> Iterator[tuple[str, Event | LeftOutItem]]:
    """Events without what they have in common, and the end of each one's key."""
    blocks = [object_or_empty(block) for block in list_or_empty(message.get("content"))]
    if not blocks:
        blocks = [{"type": "text", "text": message.get("text")}]
    has_speech = False
    position = 0
    for is_speech, group in groupby(blocks, key=lambda block: block.get("type") in _SPEECH):
        run = [*group]
        if is_speech:
            texts = [
                _PLACEHOLDER.sub("\n", stripped_text_or_empty(block.get("text"))).strip()
                for block in run
            ]
            text = "\n".join(filter(None, texts))
            if text:
                yield f"#{position}" if has_speech else "", {"content": text}
                has_speech = True
            elif any(stripped_text_or_empty(block.get("text")) for block in run):
                yield "", LeftOutItem("placeholders")
        else:
            for offset, block in enumerate(run):
                yield f"#{position + offset}", _make_event_of_non_speech_block(block)
        position += len(run)
    for number, attachment in enumerate(
        map(object_or_empty, list_or_empty(message.get("attachments")))
    ):
        yield f"#attachment-{number}", _make_event_of_attachment(attachment)


def _make_event_of_attachment(attachment: Json) -> Event | LeftOutItem:
    name, text = (
        stripped_text_or_empty(attachment.get(n)) for n in ("file_name", "extracted_content")
    )
    if not text:
        return LeftOutItem("files without text")
    return {"content": f"{name}\n{text}" if name else text} | (
        {"metadata": {"file": name}} if name else {}
    )


def _make_event_of_non_speech_block(block: Json) -> Event | LeftOutItem:
    kind = stripped_text_or_empty(block.get("type"))
    if kind == "tool_use":
        text, event_type = _describe_tool_call(block.get("input")), "action"
    elif kind == "tool_result":
        text, event_type = _join_tool_result(block.get("content")), "observation"
    else:
        return LeftOutItem(_LEFT_OUT.get(kind, f"blocks of type {kind}"))
    if not text:
        return LeftOutItem("empty calls and results of tools")
    tool = stripped_text_or_empty(block.get("name"))
    return {"role": "agent", "type": event_type, "content": text} | (
        {"metadata": {"tool": tool}} if tool else {}
    )


def _describe_tool_call(value: object) -> str:
    """What a tool was called with; of an artifact its text as it is."""
    arguments = object_or_empty(value)
    text = stripped_text_or_empty(arguments.get("content"))
    if text:
        return "\n".join(filter(None, [stripped_text_or_empty(arguments.get("title")), text]))
    return json.dumps(value, ensure_ascii=False) if value else ""


def _join_tool_result(content: object) -> str:
    if isinstance(content, str):
        return content.strip()
    return "\n".join(
        filter(
            None,
            (
                stripped_text_or_empty(object_or_empty(b).get("text"))
                for b in list_or_empty(content)
            ),
        )
    )
