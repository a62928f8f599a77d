"""The examples of the document as one story: each is called as it is written, its ids those that
the calls before it really gave."""

import re
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import quote

from strandline.apidocs.examples import Example
from strandline.db.database import Caller
from strandline.jobs import store_runs
from strandline.topics import store_publish, store_snapshots
from strandline.topics.store_publish import NewSnapshot
from tests.support import Gateway, Reply

PAYLOAD = b"The buoy's chart, as bytes."
"""What the examples upload."""
# What no two runs share; everything else in an answer is as the example says.
_NAMES = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|b[a-z2-7]{58}"
    r"|\d{4}-\d\d-\d\dT[\d:.]+Z|strandline_[\w-]+|https?://\S+"
)
_SCORES, _USES = {"known", "relevance", "why"}, {"used", "remaining", "retry_after", "leased"}
# What is judged and worded, by a model or by the heuristic model, and what changes by the second.
_JUDGED = {"topic", "summary", "entities", "importance", "density", "coherence", "quality"}
_SHOWN = {"text", "tokens", "known"}
_WARMTH = {"similarity", "heat", "base", "retention", "hours_since_access"}
_FOUND = ("POST /api/v1/insert", "weight")
"""A score, too; elsewhere the caller's own."""
_OPAQUE = {
    "age_seconds",
    "active_age_seconds",
    "stored_bytes",
    "mark",
    "read_token",
    "next_cursor",
    *_SCORES,
    *_USES,
    *_JUDGED,
    *_SHOWN,
    *_WARMTH,
}


class Story:
    """Calls examples in their order, and remembers what stands for what."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.keys = {
            "nobody": None,
            "member": gateway.key(user="user:alice"),
            "admin": gateway.key(rights=("read", "write", "admin")),
            "operator": gateway.key("operations", rights=("operator",)),
        }
        self._real: dict[str, str] = {}

    def tell(self, example: Example) -> Reply:
        """Call one, and check that it answers as it says. Raises AssertionError."""
        real: Example = Example(**self._with_real_names(vars(example)))
        if real.operation.endswith("/retry"):
            self._fail_jobs()
        method, path = real.operation.split()
        for name, value in real.path.items():
            path = path.replace(f"{{{name}}}", quote(value))
        if real.operation == "GET /api/v1/admin/topics":
            self._publish_snapshots()
        if path.endswith("/context"):
            self._gateway.sweep()  # what was said meanwhile became a chain
        reply = self._gateway.call(
            method,
            path,
            real.body,
            key=self.keys[real.by],
            query=real.query,
            headers=real.headers,
        )
        assert reply.status == example.status, f"{example.operation}: {reply.text}"
        if example.answer is not None:
            self._compare(example.answer, reply.body, example.operation)
        if real.operation == "POST /api/v1/uploads" and reply.status == 201:
            _put(reply.body)
        return reply

    def _fail_jobs(self) -> None:
        """What was started was not heard of for long."""
        access = self._gateway.database.connect_as(Caller.background("acme"))
        with access.transaction():
            store_runs.expire_leases(access, None, datetime.now(UTC) + timedelta(days=1))

    def _publish_snapshots(self) -> None:
        """A build, and a version that changes nothing."""
        self._gateway.run_job("builder", "acme")
        access, now = self._gateway.database.connect_as(Caller.background("acme")), _now()
        configuration = store_snapshots.list_newest(access, None, 1)[0].configuration
        with access.transaction():
            assert store_publish.activate_next(access, 1) == 2
            snapshot = NewSnapshot(2, 1, None, None, now, 0, [], configuration)
            store_publish.add_snapshot(access, snapshot)

    def _with_real_names(self, said: Any) -> Any:
        if isinstance(said, Mapping):
            pairs = cast("Mapping[str, Any]", said).items()
            return {name: self._with_real_names(value) for name, value in pairs}
        if isinstance(said, list):
            return [self._with_real_names(value) for value in cast("list[Any]", said)]
        return self._real.get(said, said) if isinstance(said, str) else said

    def _compare(self, said: Any, real: Any, place: str) -> None:
        """`said` and `real` have one shape, and a name in one stands for one in the other."""
        both = f"{place}: says {said!r}, is {real!r}"
        if isinstance(said, dict) and isinstance(real, dict):
            shape = cast("dict[str, Any]", said)
            assert list(shape) == list(cast("dict[str, Any]", real)), both
            for name, value in shape.items():
                is_score = place.startswith(_FOUND[0]) and name == _FOUND[1]
                if (name in _OPAQUE or is_score) and value is not None:
                    assert isinstance(real[name], str) == isinstance(value, str), both
                    if isinstance(value, str):
                        self._real[value] = real[name]
                else:
                    self._compare(value, real[name], f"{place}.{name}")
        elif isinstance(said, list) and isinstance(real, list):
            items, others = cast("list[Any]", said), cast("list[Any]", real)
            assert len(items) == len(others), both
            for n, value in enumerate(items):
                self._compare(value, others[n], f"{place}[{n}]")
        elif isinstance(said, str) and isinstance(real, str) and _NAMES.fullmatch(said):
            assert _NAMES.fullmatch(real), both
            assert said.endswith("Z") or self._real.setdefault(said, real) == real, both
        else:
            assert said == real, both


def _now() -> datetime:
    return datetime.now(UTC)


def _put(upload: Mapping[str, Any]) -> None:
    """Put the payload where an upload says."""
    request = urllib.request.Request(  # noqa: S310 - local S3
        upload["url"], PAYLOAD, upload["headers"], method="PUT"
    )
    with urllib.request.urlopen(request) as stored:  # noqa: S310
        assert stored.status == 200
