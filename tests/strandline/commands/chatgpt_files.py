"""Conversations as ChatGPT exports them."""

from typing import Any


def chatgpt_node(
    name: str, parent: str | None, role: str, text: object, at: float | None
) -> dict[str, Any]:
    message = {
        "id": f"m-{name}",
        "author": {"role": role},
        "content": {"content_type": "text", "parts": [text]},
        "create_time": at,
    }
    return {"id": name, "parent": parent, "children": [], "message": message}


def chatgpt(count: int = 0) -> dict[str, Any]:
    """A conversation whose second question was edited: the first one lies on another branch."""
    nodes = [
        {"id": "root", "parent": None, "children": ["s"], "message": None},
        chatgpt_node("s", "root", "system", "", None),
        chatgpt_node("q1", "s", "user", "Is the Petrel free?", 1_714_000_000.5),
        chatgpt_node("a1", "q1", "assistant", "On which day?", 1_714_000_010),
        chatgpt_node("old", "a1", "user", "Thursday", 1_714_000_020),
        chatgpt_node("q2", "a1", "user", "Friday", 1_714_000_030),
        chatgpt_node("t", "q2", "tool", '{"free": true}', 1_714_000_031),
        chatgpt_node("img", "t", "assistant", {"asset_pointer": "file"}, 1_714_000_032),
        chatgpt_node("a2", "img", "assistant", "Yes.", None),
    ]
    last = "a2"
    for n in range(count):
        nodes.append(chatgpt_node(f"n{n}", last, "user", f"more {n}", 1_714_000_100 + n))
        last = f"n{n}"
    return {
        "title": "Boats",
        "conversation_id": "c-1",
        "current_node": last,
        "mapping": {node["id"]: node for node in nodes},
    }
