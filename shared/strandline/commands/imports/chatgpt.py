"""Conversations of ChatGPT's conversations.json: each a tree of messages, of which the branch is
taken that the person saw last."""

from __future__ import annotations

from collections.abc import Iterator
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
    list_or_empty,
    make_conversation_event,
    object_or_empty,
    quote_shortened_name,
    stripped_text_or_empty,
    unix_seconds_to_rfc3339,
)

_PRIVATE_FLAGS = ("is_do_not_remember", "is_temporary_chat")
_HIDDEN_FLAG = "is_visually_hidden_from_conversation"
_HIDDEN_TYPES = ("user_editable_context", "model_editable_context")
_THOUGHT_TYPES = ("thoughts", "reasoning_recap")
_OUTPUT_TYPES = ("execution_output", "tether_quote", "tether_browsing_display", "system_error")
_TEXT_MEMBERS = ("text", "result", "summary")
"""Where a content without parts has its text."""
_SOURCE_MEMBERS = ("title", "url")


def read_chatgpt_conversation(conversation: Json, options: ImportOptions, place: str) -> Items:
    """The messages of a conversation."""
    mapping = object_or_empty(conversation.get("mapping"))
    ids = (id_text_or_none(conversation.get(name)) for name in ("conversation_id", "id"))
    identity = next((name for name in ids if name), None) or next(iter(mapping), "")
    title = stripped_text_or_empty(conversation.get("title"))
    place = f"{place} {quote_shortened_name(title or identity)}"
    count = sum(object_or_empty(node).get("message") is not None for node in mapping.values())
    if not count:
        yield LeftOutItem("empty conversations")
        return
    if not options.include_do_not_remember and any(map(conversation.get, _PRIVATE_FLAGS)):
        yield LeftOutItem("messages not to be remembered", count)
        return
    branch, problems = _find_shown_branch(conversation.get("current_node"), mapping)
    yield from (AlterationNote(f"{place}: {problem}") for problem in problems)
    clock = LastMessageTime(unix_seconds_to_rfc3339(conversation.get("create_time")))
    shown_count = 0
    for node_id in branch:
        node = object_or_empty(mapping.get(node_id))
        if node.get("message") is not None:
            shown_count += 1
            where = f"{place}, message {node_id}"
            yield from _read_message(node_id, node["message"], identity, options, where, clock)
    if count > shown_count:
        yield LeftOutItem("messages of other branches", count - shown_count)


def _find_shown_branch(current: object, mapping: Json) -> tuple[list[str], list[str]]:
    """The ids from the first message to the last one shown, and what is wrong with the tree."""
    problems = list[str]()
    node_id = id_text_or_none(current)
    if node_id not in mapping:
        if current is not None:
            problems.append("current_node names no message; the newest branch is taken")
        node_id = _find_newest_leaf(mapping)
    branch = dict[str, None]()
    while node_id is not None:
        if node_id in branch:
            problems.append("its messages run in a circle, which ends where it closes")
            break
        if node_id not in mapping:
            problems.append(f"message {node_id}, which another one follows, is not there")
            break
        branch[node_id] = None
        node_id = id_text_or_none(object_or_empty(mapping[node_id]).get("parent"))
    return [*reversed(branch)], problems


def _find_newest_leaf(mapping: Json) -> str | None:
    """The message that no other one follows and whose branch is the newest."""
    nodes = {name: object_or_empty(node) for name, node in mapping.items()}
    parents = {name: id_text_or_none(node.get("parent")) for name, node in nodes.items()}
    moments = {
        name: unix_seconds_to_rfc3339(object_or_empty(node.get("message")).get("create_time"))
        for name, node in nodes.items()
    }

    def moment(leaf: str) -> str:
        path = dict[str, None]()
        name: str | None = leaf
        while name in moments and name not in path and moments[name] is None:
            path[name] = None
            name = parents[name]
        moment_text = moments.get(name or "") or ""
        moments.update(dict.fromkeys(path, moment_text))  # so that no message is passed twice
        return moment_text

    leaves = mapping.keys() - {*parents.values()}
    return max(sorted(leaves) or list(mapping), key=moment, default=None)


def _read_message(
    node_id: str,
    value: Any,
    identity: str,
    options: ImportOptions,
    place: str,
    clock: LastMessageTime,
) -> Items:
    message = object_or_empty(value)
    if not isinstance(message.get("author"), dict) or not isinstance(
        message.get("content"), dict | None
    ):
        yield RefusedItem(place, "author or content is no object")
        return
    role = str(object_or_empty(message["author"]).get("role"))
    text = _join_message_text(object_or_empty(message.get("content")))
    kind = _find_reason_to_leave_out(message, role, text)
    times = clock.make_time_field(unix_seconds_to_rfc3339(message.get("create_time")))
    if kind is not None:
        yield LeftOutItem(kind)
        return
    key = id_text_or_none(message.get("id")) or node_id
    fields = _make_role_and_type(message, role) | times
    yield NewEvent(
        make_conversation_event("chatgpt", identity, key, options, content=text, **fields),
        place,
        thread=identity,
    )


def _join_message_text(content: Json) -> str:
    texts = [*_iterate_part_texts(list_or_empty(content.get("parts")))]
    texts += (
        [stripped_text_or_empty(content.get(name)) for name in _TEXT_MEMBERS] if not texts else []
    )
    return "\n".join(filter(None, texts)).strip()


def _iterate_part_texts(parts: list[Any]) -> Iterator[str]:
    """What was typed, and what was said as it was transcribed."""
    for part in parts:
        yield (
            part
            if isinstance(part, str)
            else stripped_text_or_empty(object_or_empty(part).get("text"))
        )


def _find_reason_to_leave_out(message: Json, role: str, text: str) -> str | None:
    content = object_or_empty(message.get("content"))
    content_type = stripped_text_or_empty(content.get("content_type"))
    if object_or_empty(message.get("metadata")).get(_HIDDEN_FLAG) or content_type in _HIDDEN_TYPES:
        return "hidden prompts"
    if role == "system":
        return "system messages"
    if content_type in _THOUGHT_TYPES:
        return "thoughts"
    if text:
        return None
    kinds = " ".join(
        stripped_text_or_empty(object_or_empty(part).get("content_type"))
        for part in list_or_empty(content.get("parts"))
    )
    if "image" in kinds:
        return "pictures without text"
    if "audio" in kinds or "video" in kinds:
        return "recordings without text"
    known_types = ("", "text", "multimodal_text", "code", *_OUTPUT_TYPES)
    return "empty messages" if content_type in known_types else f"messages of type {content_type}"


def _make_role_and_type(message: Json, role: str) -> Event:
    """Who said it, and whether it is an action of the agent or an observation of a tool."""
    content = object_or_empty(message.get("content"))
    content_type, recipient = (
        stripped_text_or_empty(content.get("content_type")),
        message.get("recipient"),
    )
    if role == "user":
        return {"role": "user"}
    if role == "tool" or content_type in _OUTPUT_TYPES:
        tool = id_text_or_none(object_or_empty(message.get("author")).get("name"))
        source = {name: stripped_text_or_empty(content.get(name)) for name in _SOURCE_MEMBERS}
        metadata = {n: v for n, v in {"tool": tool, **source}.items() if v}
        more = {"metadata": metadata} if metadata else {}
        return {"role": "agent", "type": "observation", **more}
    if recipient not in (None, "", "all"):
        return {"role": "agent", "type": "action", "metadata": {"tool": str(recipient)}}
    return {"role": "agent"} | ({"type": "action"} if content_type == "code" else {})
