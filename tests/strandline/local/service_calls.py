"""Calls of a service that runs on this machine."""

import json
import urllib.request
from typing import Any

from strandline.local.runtime import RunningService


def call(service: RunningService, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-API-Key": service.key, "Content-Type": "application/json"}
    request = urllib.request.Request(service.url + path, data, headers)  # noqa: S310 -- our own
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return json.load(answer)
