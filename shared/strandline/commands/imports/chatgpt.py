"""Conversations of ChatGPT's conversations.json: each a tree of messages, of which the branch is
taken that the person saw last."""

from __future__ import annotations

from collections.abc import Iterator
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
    parse_seconds,
    quote_name,
)

_PRIVATE_FLAGS = ("is_do_not_remember", "is_temporary_chat")
_HIDDEN_FLAG = "is_visually_hidden_from_conversation"
_HIDDEN_TYPES = ("user_editable_context", "model_editable_context")
_THOUGHT_TYPES = ("thoughts", "reasoning_recap")
_OUTPUT_TYPES = ("execution_output", "tether_quote", "tether_browsing_display", "system_error")
_TEXT_MEMBERS = ("text", "result", "summary")
"""Where a content without parts has its text."""
_SOURCE_MEMBERS = ("title", "url")


def read_chatgpt(conversation: Json, options: ImportOptions, place: str) -> Items:
    """The messages of a conversation."""
    mapping = as_object(conversation.get("mapping"))
    ids = (as_identity(conversation.get(name)) for name in ("conversation_id", "id"))
    identity = next((name for name in ids if name), None) or next(iter(mapping), "")
    place = f"{place} {quote_name(as_text(conversation.get('title')) or identity)}"
    count = sum(as_object(node).get("message") is not None for node in mapping.values())
    if not count:
        yield LeftOut("empty conversations")
        return
    if not options.include_do_not_remember and any(map(conversation.get, _PRIVATE_FLAGS)):
        yield LeftOut("messages not to be remembered", count)
        return
    branch, problems = _find_branch(conversation.get("current_node"), mapping)
    yield from (Note(f"{place}: {problem}") for problem in problems)
    clock = LastMoment(parse_seconds(conversation.get("create_time")))
    shown_count = 0
    for node_id in branch:
        node = as_object(mapping.get(node_id))
        if node.get("message") is not None:
            shown_count += 1
            where = f"{place}, message {node_id}"
            yield from _read_message(node_id, node["message"], identity, options, where, clock)
    if count > shown_count:
        yield LeftOut("messages of other branches", count - shown_count)


def _find_branch(current: object, mapping: Json) -> tuple[list[str], list[str]]:
    """The ids from the first message to the last one shown, and what is wrong with the tree."""
    problems = list[str]()
    node_id = as_identity(current)
    if node_id not in mapping:
        if current is not None:
            problems.append("current_node names no message; the newest branch is taken")
        node_id = _newest_leaf(mapping)
    branch = dict[str, None]()
    while node_id is not None:
        if node_id in branch:
            problems.append("its messages run in a circle, which ends where it closes")
            break
        if node_id not in mapping:
            problems.append(f"message {node_id}, which another one follows, is not there")
            break
        branch[node_id] = None
        node_id = as_identity(as_object(mapping[node_id]).get("parent"))
    return [*reversed(branch)], problems


def _newest_leaf(mapping: Json) -> str | None:
    """The message that no other one follows and whose branch is the newest."""
    nodes = {name: as_object(node) for name, node in mapping.items()}
    parents = {name: as_identity(node.get("parent")) for name, node in nodes.items()}
    moments = {
        name: parse_seconds(as_object(node.get("message")).get("create_time"))
        for name, node in nodes.items()
    }

    def moment(leaf: str) -> str:
        path = dict[str, None]()
        name: str | None = leaf
        while name in moments and name not in path and moments[name] is None:
            path[name] = None
            name = parents[name]
        found = moments.get(name or "") or ""
        moments.update(dict.fromkeys(path, found))  # so that no message is passed twice
        return found

    leaves = mapping.keys() - {*parents.values()}
    return max(sorted(leaves) or list(mapping), key=moment, default=None)


def _read_message(
    node_id: str, value: Any, identity: str, options: ImportOptions, place: str, clock: LastMoment
) -> Items:
    message = as_object(value)
    if not isinstance(message.get("author"), dict) or not isinstance(
        message.get("content"), dict | None
    ):
        yield Refusal(place, "author or content is no object")
        return
    role = str(as_object(message["author"]).get("role"))
    text = _read_text(as_object(message.get("content")))
    kind = _reason_to_leave_out(message, role, text)
    times = clock.at(parse_seconds(message.get("create_time")))
    if kind is not None:
        yield LeftOut(kind)
        return
    key = as_identity(message.get("id")) or node_id
    fields = _classify(message, role) | times
    yield NewEvent(make_event("chatgpt", identity, key, options, content=text, **fields), place)


def _read_text(content: Json) -> str:
    texts = [*_read_parts(as_list(content.get("parts")))]
    texts += [as_text(content.get(name)) for name in _TEXT_MEMBERS] if not texts else []
    return "\n".join(filter(None, texts)).strip()


def _read_parts(parts: list[Any]) -> Iterator[str]:
    """What was typed, and what was said as it was transcribed."""
    for part in parts:
        yield part if isinstance(part, str) else as_text(as_object(part).get("text"))


def _reason_to_leave_out(message: Json, role: str, text: str) -> str | None:
    content = as_object(message.get("content"))
    content_type = as_text(content.get("content_type"))
    if as_object(message.get("metadata")).get(_HIDDEN_FLAG) or content_type in _HIDDEN_TYPES:
        return "hidden prompts"
    if role == "system":
        return "system messages"
    if content_type in _THOUGHT_TYPES:
        return "thoughts"
    if text:
        return None
    kinds = " ".join(
        as_text(as_object(part).get("content_type")) for part in as_list(content.get("parts"))
    )
    if "image" in kinds:
        return "pictures without text"
    if "audio" in kinds or "video" in kinds:
        return "recordings without text"
    known_types = ("", "text", "multimodal_text", "code", *_OUTPUT_TYPES)
    return "empty messages" if content_type in known_types else f"messages of type {content_type}"


def _classify(message: Json, role: str) -> Event:
    """Who said it, and whether it is an action of the agent or an observation of a tool."""
    content = as_object(message.get("content"))
    content_type, recipient = (as_text(content.get("content_type")), message.get("recipient"))
    if role == "user":
        return {"role": "user"}
    if role == "tool" or content_type in _OUTPUT_TYPES:
        tool = as_identity(as_object(message.get("author")).get("name"))
        source = {name: as_text(content.get(name)) for name in _SOURCE_MEMBERS}
        metadata = {n: v for n, v in {"tool": tool, **source}.items() if v}
        more = {"metadata": metadata} if metadata else {}
        return {"role": "agent", "type": "observation", **more}
    if recipient not in (None, "", "all"):
        return {"role": "agent", "type": "action", "metadata": {"tool": str(recipient)}}
    return {"role": "agent"} | ({"type": "action"} if content_type == "code" else {})
