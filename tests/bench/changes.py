"""What changes: is the current value told at each moment, and never a stale one alone?

PYTHONPATH=shared:. python -m tests.bench.changes [--file FILE] [--list]

Every conversation is told to the real handlers, message by message. At each moment a question is
asked twice: while the last message is not folded yet, and after it is folded and promoted. A moment
is right if recall and the context hold the current value, and what is known does not hold the stale
one alone. Where something only seems to change, nothing that is known may end, nor be doubted.
Chains before the first change are promoted as warm ones; later ones by their own right.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from strandline.embeddings.minilm import LocalEmbedder
from strandline.local.postgres import EmbeddedPostgres
from tests.bench import strandline_system
from tests.bench.strandline_system import Strandline

CONVERSATIONS = Path(__file__).parent / "changes/conversations.json"
LIMIT, BUDGET = 8, 600
_AGENT = "agent:assistant"


class Moment(NamedTuple):
    """What is told at one moment."""

    question: str
    is_folded: bool
    recalled: bool
    """Whether recall holds the current value."""
    in_context: bool
    known: Sequence[str]
    is_stale_alone: bool
    """Whether what is known holds the stale value and not the current one."""

    @property
    def is_right(self) -> bool:
        """Whether the current value is told, and the stale one not as what is known."""
        return self.recalled and self.in_context and not self.is_stale_alone


@dataclass(frozen=True)
class Result:
    """A conversation, its moments, and the facts that ended."""

    name: str
    kind: str
    moments: Sequence[Moment]
    ended: Sequence[str]

    @property
    def doubts(self) -> bool:
        """Whether anything known is doubted."""
        return any(", said since:" in line for one in self.moments for line in one.known)

    @property
    def is_right(self) -> bool:
        """Whether every moment is right and, where nothing changes, all stands."""
        stands = self.kind == "change" or not (self.ended or self.doubts)
        return stands and all(moment.is_right for moment in self.moments)


def measure(system: Strandline, conversation: Mapping[str, Any]) -> Result:
    """Tell a conversation to a tenant of its own, and ask at its moments."""
    tenant, user = conversation["id"], conversation["user"]
    key = system.gateway.key(tenant)
    moments: list[Moment] = []
    before_change = True
    for number, message in enumerate(conversation["messages"], 1):
        _append(system, key, user, message)
        asked = [one for one in conversation["moments"] if one["after"] == number]
        before_change = before_change and not any(one["stale"] for one in asked)
        moments += [_ask(system, key, user, one, is_folded=False) for one in asked]
        ends_session = number == len(conversation["messages"]) or (
            conversation["messages"][number]["session"] != message["session"]
        )
        if asked or ends_session:
            _promote(system, tenant, is_warm=before_change or conversation["kind"] == "seems")
        moments += [_ask(system, key, user, one, is_folded=True) for one in asked]
    rows = system.base.rows(
        "select name from graph_nodes where tenant_id = %s and valid_to is not null", tenant
    )
    return Result(tenant, conversation["kind"], moments, [name for (name,) in rows])


def _append(system: Strandline, key: str, user: str, message: Mapping[str, Any]) -> None:
    is_user = message["speaker"] == user
    body = {
        "participants": [user, _AGENT],
        "speaker": message["speaker"],
        "role": "user" if is_user else "agent",
        "content": message["text"],
        "session_id": message["session"],
        "occurred_at": message["at"],
    }
    reply = system.gateway.call("POST", "/api/v1/events", body, key=key)
    if reply.status != 201:
        raise RuntimeError(f"not stored: {reply.text}")


def _promote(system: Strandline, tenant: str, *, is_warm: bool) -> None:
    system.fold()
    if is_warm:
        system.base.rows(
            "update chains set promote_until = now() + interval '1 day', status = 'active'"
            " where tenant_id = %s",
            tenant,
        )
    system.gateway.run_job("promoter", tenant)


def _ask(
    system: Strandline, key: str, user: str, moment: Mapping[str, Any], *, is_folded: bool
) -> Moment:
    call, question = system.gateway.call, {"query": moment["question"], "participants": [user]}
    hits = call("POST", "/api/v1/recall", {**question, "limit": LIMIT}, key=key).body["hits"]
    text: str = call("POST", "/api/v1/context", {**question, "budget": BUDGET}, key=key).body[
        "text"
    ]
    current, stale = moment["current"].casefold(), (moment["stale"] or "\0").casefold()
    known = list(_list_known(text))
    told = "\n".join(known).casefold()
    return Moment(
        moment["question"],
        is_folded,
        any(current in (hit["text"] or "").casefold() for hit in hits),
        current in text.casefold(),
        known,
        stale in told and current not in told,
    )


def _list_known(text: str) -> Iterator[str]:
    _, heading, rest = text.partition("What is known:\n")
    for line in rest.splitlines() if heading else ():
        if not line.startswith("- "):
            return
        yield line


def main() -> None:
    """Print how many conversations are right, and with `--list` what was told at each moment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default=CONVERSATIONS)
    parser.add_argument("--list", action="store_true", help="list what was told at each moment")
    arguments = parser.parse_args()
    conversations = json.loads(arguments.file.read_text())
    embedder = LocalEmbedder()
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedPostgres(Path(name) / "postgres", durable=False) as server,
        strandline_system.open_strandline(server, embedder, Path(name)) as system,
    ):
        results = [measure(system, conversation) for conversation in conversations]
    for kind in ("change", "seems"):
        some = [result for result in results if result.kind == kind]
        right, stale = (
            sum(one.is_right for one in some),
            sum(moment.is_stale_alone for one in some for moment in one.moments),
        )
        print(f"{kind}: {right} of {len(some)} right at each moment; {stale} moments stale alone")
    for result in results if arguments.list else ():
        print(f"{result.name} {'right' if result.is_right else 'WRONG'}; ended: {result.ended}")
        for moment in result.moments:
            marks = f"recall {moment.recalled:d} context {moment.in_context:d}"
            state = "folded" if moment.is_folded else "open  "
            print(f"    {state} {marks} stale {moment.is_stale_alone:d}: {moment.question}")
            for line in moment.known:
                print(f"        {line}")


if __name__ == "__main__":
    main()
