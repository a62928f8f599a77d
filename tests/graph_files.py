"""Export files of the graph, as tests fetch, read, damage and compare them."""

import hashlib
import json
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from strandline.graph.transfer.hashed_lines import FORMAT
from strandline.graph.transfer.schemas import TransferCounts
from tests.graph_calls import WHO
from tests.support import Gateway, Reply, ScratchDatabase

EXPORTS, IMPORTS = "/api/v1/graph/exports", "/api/v1/graph/imports"
# What may differ between the export of a graph and that of its import.
_IDS = ("id", "events")
FACT = "The Petrel is Ada's boat"
TABLES = (
    *("events", "event_keys", "scopes", "graph_nodes", "graph_edges", "graph_observations"),
    *("graph_sources", "topic_fields", "topic_field_revisions", "scope_work", "graph_analyses"),
)
"""What an import writes."""


def export(
    gateway: Gateway, key: str, *who: str, everybody: bool = False, **fields: Any
) -> tuple[Any, bytes]:
    """An export on behalf of these; its answer, and the file behind its address."""
    body = {**({"participants": who} if who else {}), **fields}
    query = {"everybody": "true"} if everybody else None
    reply = gateway.call("POST", EXPORTS, body, key=key, query=query)
    assert reply.status == 201, reply.text
    with urllib.request.urlopen(reply.body["url"], timeout=10) as answer:  # noqa: S310
        data = answer.read()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (
        reply.body["bytes"],
        reply.body["sha256"],
    )
    return reply.body, data


def import_text(gateway: Gateway, key: str, data: bytes) -> Reply:
    """An import of a file within the request."""
    return gateway.call("POST", IMPORTS, {"content": data.decode()}, key=key)


def lines_of(data: bytes) -> list[dict[str, Any]]:
    """The lines of a file, parsed."""
    return [json.loads(line) for line in data.splitlines()]


def comparable(data: bytes) -> list[dict[str, Any]]:
    """The lines without what may differ after an import: ids, hashes, and when it was exported."""
    lines = [
        {name: value for name, value in line.items() if name not in (*_IDS, "chain")}
        for line in lines_of(data)
    ]
    del lines[0]["exported_at"]
    return lines


def of_kind(data: bytes, kind: str) -> list[dict[str, Any]]:
    """The lines of one kind."""
    return [line for line in lines_of(data) if line["kind"] == kind]


def rehash(lines: list[dict[str, Any]]) -> bytes:
    """A file of these lines, numbered and hashed as by anyone who wants to deceive."""
    data, chain = b"", b""
    for number, line in enumerate(lines, 1):
        members = {name: value for name, value in line.items() if name != "chain"}
        text = json.dumps({**members, "line": number}, ensure_ascii=False, separators=(",", ":"))
        body = text[:-1].encode()
        chain = hashlib.sha256(chain + b"\n" + body).hexdigest().encode()
        data += body + b',"chain":"' + chain + b'"}\n'
    return data


def tell_entity(name: str, participants: Sequence[str]) -> bytes:
    """A file of one entity."""
    at, id_ = "2026-05-08T12:00:00+00:00", str(uuid.uuid4())
    counts = dict.fromkeys(TransferCounts.model_fields, 0)
    counts |= dict.fromkeys(("scopes", "nodes", "statements", "observations"), 1)
    message: dict[str, Any] = {
        "node": 1,
        "patch": {},
        "confidence": None,
        "heat": None,
        "valid_from": at,
    }
    lines: list[dict[str, Any]] = [
        {"kind": "header", "format": FORMAT, "version": 1, "exported_at": at, "counts": counts},
        {"kind": "scope", "scope": 1, "participants": sorted(participants)},
        {
            "kind": "node",
            "node": 1,
            "id": f"ent:{id_}",
            "type": "entity",
            "name": name,
            "ordinal": 0,
            "state": {},
        },
        {
            "kind": "statement",
            "id": id_,
            "events": [id_],
            "role": "user",
            "speaker": None,
            "trust": "user",
            "said_at": at,
            "content": name,
            "says": [message],
        },
        {"kind": "end", "lines": 5},
    ]
    return rehash(lines)


def damages(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Each damage of a file: what it is, the line in which it must be noticed, and the file."""
    lines = data.splitlines(keepends=True)
    for n, line in enumerate(lines):
        number, before, after = n + 1, lines[:n], lines[n + 1 :]
        yield "ends before", number, b"".join(before)
        yield "ends within", number, b"".join(before) + line[: len(line) // 2]
        yield "ends without its line feed", number, b"".join(before) + line[:-1]
        yield "is left out", number, b"".join([*before, *after])
        place = len(line) // 3
        other = b"x" if line[place : place + 1] != b"x" else b"y"
        altered = line[:place] + other + line[place + 1 :]
        yield "is altered", number, b"".join([*before, altered, *after])
        yield "is doubled", number + 1, b"".join([*before, line, line, *after])
        if after:
            swapped = [*before, after[0], line, *after[1:]]
            yield "is swapped with the next", number, b"".join(swapped)


def count_rows(base: ScratchDatabase, tenant: str) -> dict[str, int]:
    """The rows of a tenant in every table that an import writes."""
    counts: dict[str, int] = {}
    for table in TABLES:
        statement = f"select count(*) from {table} where tenant_id = %s"  # noqa: S608
        ((counts[table],),) = base.rows(statement, tenant)
    return counts


def file_with_patch(node_type: str, name: str, **patch: object) -> bytes:
    """A file of one node, of which its statement says this."""
    lines = lines_of(tell_entity(name, WHO))
    lines[2]["type"] = node_type
    lines[3]["says"][0]["patch"] = patch
    return rehash(lines)
