"""What changes: is the current value told at each moment, and never a stale one alone?

PYTHONPATH=shared:. python -m tests.bench.changes [--file FILE] [--list]

The author of `conversations.json` knew the kinds of cues that the heuristic model knows; that of
`unseen.json` knew nothing of them. Every conversation is told to the real handlers, message by
message. At each moment a question is asked twice: while the last message is not folded yet, and
after it is folded and promoted. A moment is right if recall and the context hold the current value,
and what is known does not hold the stale one alone. Where something only seems to change, nothing
that is known may end, nor be doubted. Chains before the first change are promoted as warm ones;
later ones by their own right.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from strandline.embeddings.local import LocalEmbedder
from strandline.local.postgres import EmbeddedPostgres
from tests.bench import strandline_system
from tests.bench.strandline_system import Strandline
from tests.context_block import KNOWN_HEADING, SAID_HEADING

FOLDER = Path(__file__).parent / "changes"
FILES = (FOLDER / "conversations.json", FOLDER / "unseen.json")
LIMIT, BUDGET = 8, 600
_AGENT = "agent:assistant"


class Moment(NamedTuple):
    """What is told at one moment."""

    question: str
    is_folded: bool
    recalled: bool
    """Whether recall holds the current value."""
    in_context: bool
    lines: Sequence[str]
    """What is known, and what was said as of its date."""
    is_stale_alone: bool
    """Whether what is known holds the stale value and not the current one."""
    is_dated_alone: bool
    """Whether that is so of what was said as of its date."""

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
        return any(", said since:" in line for one in self.moments for line in one.lines)

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
        _append(system, key, conversation, message)
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


def _append(
    system: Strandline, key: str, conversation: Mapping[str, Any], message: Mapping[str, Any]
) -> None:
    body = {
        "participants": conversation.get("participants", [conversation["user"], _AGENT]),
        "speaker": message["speaker"],
        "role": "agent" if message["speaker"] == _AGENT else "user",
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
    known, said = (list(_list_lines(text, one)) for one in (KNOWN_HEADING, SAID_HEADING))
    return Moment(
        moment["question"],
        is_folded,
        any(current in (hit["text"] or "").casefold() for hit in hits),
        current in text.casefold(),
        known + said,
        _is_alone(stale, current, known),
        _is_alone(stale, current, said),
    )


def _is_alone(stale: str, current: str, lines: Sequence[str]) -> bool:
    told = "\n".join(lines).casefold()
    return stale in told and current not in told


def _list_lines(text: str, heading: str) -> Iterator[str]:
    _, heading, rest = text.partition(f"{heading}\n")
    for line in rest.splitlines() if heading else ():
        if not line.startswith("- "):
            return
        yield line


def measure_file(file: Path, embedder: LocalEmbedder, *, lists: bool) -> None:
    """Print how many of a file's conversations are right, and what was told at each moment."""
    conversations = json.loads(file.read_text())
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedPostgres(Path(name) / "postgres", durable=False) as server,
        strandline_system.open_strandline(server, embedder, Path(name)) as system,
    ):
        results = [measure(system, conversation) for conversation in conversations]
    print(file.name)
    for kind in ("change", "seems"):
        _print_counts(kind, [result for result in results if result.kind == kind])
    for result in results if lists else ():
        _print_moments(result)


def _print_counts(kind: str, results: Sequence[Result]) -> None:
    moments = [moment for result in results for moment in result.moments]
    print(
        f"  {kind}: {sum(one.is_right for one in results)} of {len(results)} right at each moment; "
        f"of {len(moments)} moments {sum(one.is_stale_alone for one in moments)} with the stale "
        f"value alone as known, {sum(one.is_dated_alone for one in moments)} as of its date"
    )


def _print_moments(result: Result) -> None:
    print(f"{result.name} {'right' if result.is_right else 'WRONG'}; ended: {result.ended}")
    for moment in result.moments:
        marks = f"recall {moment.recalled:d} context {moment.in_context:d}"
        alone = f"stale alone {moment.is_stale_alone:d}, dated {moment.is_dated_alone:d}"
        state = "folded" if moment.is_folded else "open  "
        print(f"    {state} {marks} {alone}: {moment.question}")
        for line in moment.lines:
            print(f"        {line}")


def main() -> None:
    """Print the counts of each file, and with `--list` what was told at each moment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, help="another file than the two")
    parser.add_argument("--list", action="store_true", help="list what was told at each moment")
    arguments = parser.parse_args()
    embedder = LocalEmbedder()
    for file in [arguments.file] if arguments.file else FILES:
        measure_file(file, embedder, lists=arguments.list)


if __name__ == "__main__":
    main()
