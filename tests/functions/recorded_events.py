"""Recorded events of API Gateway."""

import json
from typing import Any

from tests.support import EVENTS


def from_file(name: str, key: str) -> dict[str, Any]:
    """A recorded event with a key of this test's."""
    event = json.loads((EVENTS / name).read_text())
    event["headers"]["X-Api-Key"] = key
    event["multiValueHeaders"]["X-Api-Key"] = [key]
    return event
