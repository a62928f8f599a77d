"""Example calls of the API that work, from `examples.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).parent / "examples.json"


@dataclass(frozen=True)
class ExampleCall:
    """One call that works, and its answer."""

    operation: str
    """The operation as the routes name it."""
    status: int
    by: Literal["nobody", "member", "admin", "operator", "eraser"] = "member"
    """Whose key is sent: a user's own, an unbound admin's, the operator's, a user's with the right
    to erase."""
    path: Mapping[str, str | int] = field(default_factory=dict[str, str | int])
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None
    answer: Any = None
    """The answer's body, if it is JSON."""


def load_examples() -> list[ExampleCall]:
    """The example calls, in an order in which they work: `examples.json`."""
    return [ExampleCall(**entry) for entry in json.loads(FILE.read_text())]
