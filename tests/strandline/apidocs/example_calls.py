"""The examples of the document as one story: each is called as it is written, its ids those that
the calls before it really gave."""

import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeIs, cast

from strandline.apidocs.examples import ExampleCall
from strandline.db.database import Caller
from strandline.jobs import store_runs
from strandline.topics import store_publish, store_snapshot_admin
from strandline.topics.store_publish import NewSnapshot
from tests import contract
from tests.chat_service import ScriptedTasks, use_model
from tests.support import Gateway, Reply

PAYLOAD = b"The buoy's chart, as bytes."
"""What the examples upload."""
# What no two runs share; everything else in an answer is as the example says.
_NAMES = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|b[a-z2-7]{58}"
    r"|\d{4}-\d\d-\d\dT[\d:.]+Z|strandline_[\w-]+|https?://\S+"
)
_SCORES = {"known", "relevance", "why", "score"}
_USES = {"used", "remaining", "retry_after", "leased"}
# What is judged and worded, by a model or by the heuristic model, and what changes by the second.
_JUDGED_FIELDS = {"topic", "summary", "entities", "importance", "density", "coherence", "quality"}
_SHOWN_FIELDS = {"text", "tokens", "known", "cursor"}
_WARMTH = {"similarity", "heat", "base", "retention", "hours_since_access"}
_FOUND_FIELDS = ("POST /api/v1/insert", "weight")
"""A score, too; elsewhere the caller's own."""
_OPAQUE = {
    "age_seconds",
    "active_age_seconds",
    "stored_bytes",
    "bytes",
    "sha256",
    "mark",
    "read_token",
    "next_cursor",
    *_SCORES,
    *_USES,
    *_JUDGED_FIELDS,
    *_SHOWN_FIELDS,
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
            "eraser": gateway.key(user="user:alice", rights=("read", "write", "erase")),
        }
        self._real: dict[str, str] = {}

    def tell(self, example: ExampleCall) -> Reply:
        """Call one, and check that it answers as it says. Raises AssertionError."""
        reply, renewed = self.renew(example)
        if example.answer is not None:
            told_text, real = to_text(example.answer), to_text(renewed.answer)
            assert told_text == real, (
                f"{example.operation}: `make examples` writes what is answered now"
            )
        return reply

    def renew(self, example: ExampleCall) -> tuple[Reply, ExampleCall]:
        """Call one, and give it the answer that it really has. What stands for the same stays as
        it says. Raises AssertionError at another status."""
        real: ExampleCall = ExampleCall(**_replace_names(vars(example), self._real))
        if real.operation.endswith("/retry"):
            self._fail_jobs()
        method, path = real.operation.split()
        path = contract.fill_path(path, real.path)
        if real.operation == "GET /api/v1/admin/topics":
            self._publish_snapshots()
        if real.operation == "GET /api/v1/graph/communities":
            self._gateway.run_job("analytics", "acme")
        if path.endswith("/context"):
            self._gateway.sweep()  # what was said meanwhile became a chain
        answers = real.operation in ("POST /api/v1/query", "POST /api/v1/chat")
        late = real.status == 202
        own = use_model(ScriptedTasks("out_of_time" if late else None)) if answers else None
        try:
            reply = self._gateway.call(
                method,
                path,
                real.body,
                key=self.keys[real.by],
                query=real.query,
                headers=real.headers,
            )
        finally:
            if answers:
                use_model(own)
        assert reply.status == example.status, f"{example.operation}: {reply.text}"
        if example.answer is not None:
            answer = self._renewed(example.answer, reply.body, example.operation)
            example = replace(example, answer=answer)
        if real.operation == "POST /api/v1/uploads" and reply.status == 201:
            _put(reply.body)
        return reply, example

    def _fail_jobs(self) -> None:
        """What was started was not heard of for long."""
        access = self._gateway.database.connect_as(Caller.background("acme"))
        with access.transaction():
            store_runs.fail_expired_jobs(access, None, datetime.now(UTC) + timedelta(days=1))

    def _publish_snapshots(self) -> None:
        """A build, and a version that changes nothing."""
        self._gateway.run_job("builder", "acme")
        access, now = self._gateway.database.connect_as(Caller.background("acme")), _now()
        configuration = store_snapshot_admin.list_newest_snapshots(access, None, 1)[0].configuration
        with access.transaction():
            assert store_publish.activate_next_version(access, 1) == 2
            snapshot = NewSnapshot(2, 1, None, None, now, 0, [], configuration)
            store_publish.insert_snapshot(access, snapshot)

    def _renewed(self, message: Any, real: Any, place: str) -> Any:
        """What `said` is to say of `real`: a name in one stands for one in the other."""
        if _is_name(message) and _is_name(real):
            is_same = message.endswith("Z") or self._real.setdefault(message, real) == real
            return message if is_same else self._with_said_names(real)
        if isinstance(message, dict) and isinstance(real, dict):
            shape = cast("dict[str, Any]", message)
            return {
                name: self._renewed_member(shape[name], value, name, place)
                if name in shape
                else self._with_said_names(value)
                for name, value in cast("dict[str, Any]", real).items()
            }
        if isinstance(message, list) and isinstance(real, list):
            items, others = cast("list[Any]", message), cast("list[Any]", real)
            both = [
                self._renewed(item, other, f"{place}[{n}]")
                for n, (item, other) in enumerate(zip(items, others, strict=False))
            ]
            return both + [self._with_said_names(other) for other in others[len(items) :]]
        return self._with_said_names(real)

    def _renewed_member(self, message: Any, real: Any, name: str, place: str) -> Any:
        is_score = place.startswith(_FOUND_FIELDS[0]) and name == _FOUND_FIELDS[1]
        if (name not in _OPAQUE and not is_score) or message is None:
            return self._renewed(message, real, f"{place}.{name}")
        if isinstance(message, str) != isinstance(real, str):
            return self._with_said_names(real)
        if isinstance(message, str):
            self._real[message] = real
        return message

    def _with_said_names(self, real: Any) -> Any:
        """What no example says yet, with the names that examples use."""
        names_by_value = {value: name for name, value in self._real.items()}
        return _replace_names(real, names_by_value)


def to_text(entry: Any, indent: int = 0, lead: int = 0) -> str:
    """JSON as the examples are written: on one line what fits into it. `lead` characters stand
    before it."""
    line = json.dumps(entry, ensure_ascii=False)
    if indent + lead + len(line) <= 100 or not isinstance(entry, dict | list) or not entry:
        return line
    deeper = "\n" + " " * (indent + 2)
    if isinstance(entry, list):
        values = cast("list[Any]", entry)
        lines = [to_text(value, indent + 2) for value in values]
        return f"[{deeper}{f',{deeper}'.join(lines)}\n{' ' * indent}]"
    lines = [
        f"{json.dumps(name, ensure_ascii=False)}: {to_text(value, indent + 2, len(name) + 4)}"
        for name, value in cast("dict[str, Any]", entry).items()
    ]
    return f"{{{deeper}{f',{deeper}'.join(lines)}\n{' ' * indent}}}"


def renew_text(text: str, examples: Sequence[ExampleCall]) -> str:
    """The text of the examples with the answers of these; an example that says the same keeps its
    lines."""
    decoder, parts, at = json.JSONDecoder(), list[str](), 0
    for example in examples:
        begin = text.index("{", at)
        entry, end = decoder.raw_decode(text, begin)
        if to_text(entry.get("answer")) != to_text(example.answer):
            parts += [text[at:begin], to_text({**entry, "answer": example.answer}, indent=2)]
        else:
            parts.append(text[at:end])
        at = end
    return "".join([*parts, text[at:]])


def _is_name(value: Any) -> TypeIs[str]:
    return isinstance(value, str) and _NAMES.fullmatch(value) is not None


def _replace_names(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {name: _replace_names(member, names) for name, member in pairs}
    if isinstance(value, list):
        return [_replace_names(item, names) for item in cast("list[Any]", value)]
    return names.get(value, value) if isinstance(value, str) else value


def _now() -> datetime:
    return datetime.now(UTC)


def _put(upload: Mapping[str, Any]) -> None:
    """Put the payload where an upload says."""
    request = urllib.request.Request(  # noqa: S310 - local S3
        upload["url"], PAYLOAD, upload["headers"], method="PUT"
    )
    with urllib.request.urlopen(request) as response:  # noqa: S310
        assert response.status == 200
