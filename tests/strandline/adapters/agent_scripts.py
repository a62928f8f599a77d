"""What each framework's agent must do, and a script that its model follows."""

from collections.abc import Callable

from strandline import Strandline
from tests.strandline.adapters.conftest import Users

FACT = "The spare key hangs behind the red buoy."
QUESTION = "Where does the spare key hang?"


class Script:
    """What a model answers, and what it was given."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def answer(self, prompt: object) -> str:
        """The fact's answer, if the prompt holds the fact."""
        self.prompts.append(str(prompt))
        return "Behind the red buoy." if FACT in self.prompts[-1] else "I do not know."


type Talk = Callable[[str, str, str], str]
"""One turn: the user, the session and the words; gives the answer."""


def check_three_sessions(talk: Talk, script: Script, users: Users) -> None:
    """What each framework's agent must do."""
    talk(users.alice, f"one-{users.alice}", FACT)
    talk(users.bob, f"one-{users.bob}", "I like the harbour.")
    talk(users.alice, f"two-{users.alice}", "How is the weather?")
    assert talk(users.alice, f"three-{users.alice}", QUESTION) == "Behind the red buoy."
    assert talk(users.bob, f"three-{users.bob}", QUESTION) == "I do not know."
    assert "red buoy" not in script.prompts[-1]


def list_said(client: Strandline, user: str) -> list[str]:
    """What was stored of a user and the agent, without statements."""
    events = client.get_all(user=user, agent="helper")
    return [str(event.content) for event in events if event.type != "statement"]
