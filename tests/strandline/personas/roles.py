"""Memories of two roles, and which of them a model was shown."""

from typing import Any

from tests.chat_service import SONAS, says
from tests.context_block import read_block
from tests.model_server import ModelServer, Says, right, task_of
from tests.support import Gateway, Tell

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
WHO = (ALICE, HELPER)
ROLES = {
    "Accountant": ("office", "car", "fair", "phone", "lease", "audit", "tax", "desk"),
    "Dungeon master": ("tavern", "dragon", "sword", "crypt", "feast", "quest", "potion", "elf"),
}
MEMORIES = 16
_AGREED = ", as agreed in the spring."
"""Makes a memory so long that there is no room for those of both roles."""
ROOM = {"budget": 250, "min_relevance": 0}
"""Less than all memories take, more than one."""


def tell_roles(gateway: Gateway, key: str, tell: Tell) -> dict[str, str]:
    """Memories of two roles, by turns; gives the sonas by name."""
    sonas = {
        name: gateway.call("POST", SONAS, {"name": name}, key=key).body["uuid"] for name in ROLES
    }
    for things in zip(*ROLES.values(), strict=True):
        for thing, sona in zip(things, sonas.values(), strict=True):
            text = f"The budget for the {thing} is forty of a hundred this year{_AGREED}"
            tell(key, text, *WHO, metadata={"sona": sona})
    gateway.sweep()
    return sonas


def forty(request: dict[str, Any]) -> Says:
    """A model that always gives the same answer, and is up to the tasks of the background."""
    return says("Forty.") if task_of(request) in ("answer", "reply") else right(request)


def roles_in(block: str) -> set[str]:
    """Whose memories a block shows as events about the question."""
    lines = read_block(block).parts["Events about the question:"]
    assert 1 < len(lines) < MEMORIES, "there is room for some"
    return {
        name
        for name, things in ROLES.items()
        for thing in things
        if any(f"for the {thing} is" in line for line in lines)
    }


def shown_memories(provider: ModelServer) -> set[str]:
    return roles_in(provider.prompt_text().rpartition("\n<")[0].rpartition("\n<")[0])
