"""P8: no input crashes the API, and it answers what its document says and nothing else.

Schemathesis reads `/openapi.json` and sends, with each kind of key, what the document allows and
what it does not: to the real handlers, in this process. At full size two shares, each with half of
the operations, may run side by side; `make prove` sums what they sent.
"""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from functions.query import handler as query
from strandline.config import get_settings
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, json_response
from tests.prove.in_process import URL, InProcessServer, serve_in_process
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.support import Gateway

SHARES = 2
SEED = 20261
MORE = 40
"""Examples an operation in each further pass, until a share's cases are sent."""
# Every check that there is, but:
CONFIG = """
[checks]
# What joins fields (exactly one of content, parts and blob; a speaker among the participants) or
# was given out by the service (a cursor) is refused with a 422, and no schema can say it.
positive_data_acceptance.enabled = false
# A revoked key can still be looked at: its row says that it was revoked.
use_after_free.enabled = false

# Items of a batch are refused one by one, in an answer that is a 200.
[[operations]]
include-operation-id = "post_batch"
checks.negative_data_rejection.enabled = false
"""


@dataclass(frozen=True)
class Round:
    """One run with one kind of key."""

    name: str
    key: dict[str, Any]
    """As `Gateway.key` makes it."""
    only: tuple[str, ...] = ()
    """Arguments that narrow it to what such a key is for."""

    def is_for(self, tags: set[str]) -> bool:
        """Whether `only` leaves an operation of these tags. Schemathesis would join an included tag
        and an included operation by or."""
        arguments = list(zip(self.only[::2], self.only[1::2], strict=True))
        included_tags = {tag for option, tag in arguments if option == "--include-tag"}
        excluded_tags = {tag for option, tag in arguments if option == "--exclude-tag"}
        return not tags & excluded_tags and (not included_tags or bool(tags & included_tags))


ROUNDS = (
    Round("an admin", {"rights": ("read", "write", "admin")}),
    Round(
        "a user",
        {"user": "user:alice"},
        ("--exclude-tag", "admin", "--exclude-tag", "docs"),
    ),
    Round(
        "an operator",
        {"tenant": "operations", "rights": ("operator",)},
        ("--include-tag", "admin"),
    ),
)


@pytest.fixture
def embedder() -> WordEmbedder:
    """Thousands of texts, of which only the shape matters."""
    return WordEmbedder()


@pytest.fixture
def app(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[InProcessServer]:
    """The real handlers with no quota in the way, answering whatever is sent meanwhile."""
    for name in ("REQUESTS", "APPENDS"):
        monkeypatch.setenv(f"STRANDLINE_TENANT_{name}_PER_MINUTE", str(10**9))
    get_settings.cache_clear()
    monkeypatch.chdir(tmp_path)  # where schemathesis lays a folder of its own
    with serve_in_process(InProcessServer()) as app:
        yield app


@dataclass(frozen=True)
class RunResult:
    """What a run saw."""

    cases: int
    failures: list[dict[str, Any]]
    output: str


def schemathesis(
    token: str, place: Path, phases: str, *arguments: str, seed: int = SEED
) -> RunResult:
    """One run of its command line."""
    (place / "schemathesis.toml").write_text(CONFIG)
    report = place / "report.json"
    report.unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of its libraries; ours have tests of their own
        from schemathesis.cli import schemathesis as program  # a second: for those who need it

        result = CliRunner().invoke(
            program,
            [
                *("--no-color", "--config-file", str(place / "schemathesis.toml")),
                *("run", f"{URL}/openapi.json", "--header", f"X-API-Key: {token}"),
                *("--seed", str(seed), "--workers", "2", "--generation-database", "none"),
                *("--report", "json", "--report-json-path", str(report), "--continue-on-failure"),
                *("--phases", phases, "--suppress-health-check", "too_slow"),  # a busy machine
                *arguments,
            ],
        )
    assert report.exists(), result.output
    document = json.loads(report.read_text())
    assert document["complete"], result.output
    assert not document["errors"], result.output
    return RunResult(document["test_cases"]["generated"], document["failures"], result.output)


def share_of_operations(share: int, shares: int, one: Round) -> list[str]:
    """Arguments that leave one of so many shares of the operations that are for such a key."""
    methods = ("get", "post", "put", "patch", "delete", "head")
    served = requests.get(f"{URL}/openapi.json", timeout=30).json()
    paths: dict[str, dict[str, Any]] = served["paths"]
    names = [
        operation["operationId"]
        for path in paths.values()
        for method, operation in path.items()
        if method in methods and one.is_for(set(operation["tags"]))
    ]
    return [part for name in names[share::shares] for part in ("--include-operation-id", name)]


@pytest.mark.parametrize(
    "share", [0, *(pytest.param(n, marks=pytest.mark.proof) for n in range(1, SHARES))]
)
def test_schemathesis_finds_no_crash_or_undocumented_answer(
    share: int,
    app: InProcessServer,
    gateway: Gateway,
    case_count: int,
    proof_size: Callable[[int], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = proof_size(10) == 10
    shares = SHARES if full else 1
    lowest = case_count // shares
    operations = {one.name: share_of_operations(share, shares, one) for one in ROUNDS}
    # tests/strandline/apidocs/test_examples.py sends the examples, too.
    first = "examples,coverage,fuzzing" if full else "fuzzing"
    tokens = {one.name: gateway.key(**one.key) for one in ROUNDS}
    total, failures = 0, list[str]()

    def run(one: Round, phases: str, size: int, seed: int, only: list[str]) -> None:
        nonlocal total
        arguments = ("--max-examples", str(size), *only)
        report = schemathesis(tokens[one.name], tmp_path, phases, *arguments, seed=seed)
        total += report.cases
        failures.extend([f"as {one.name}:\n{report.output}"] if report.failures else [])
        gateway.sweep()  # what they stored becomes chains, for those who read next

    for one in ROUNDS:
        run(one, first, proof_size(20), SEED, operations[one.name])
        # From one operation to the next: these need them all. A sample has those of the admin.
        if share == 0 and (full or one is ROUNDS[0]):
            run(one, "stateful", proof_size(50), SEED, [*one.only])
    for place in count():
        if total >= lowest or failures:
            break
        one = ROUNDS[place % len(ROUNDS)]
        run(one, "fuzzing", proof_size(MORE), SEED + place + 1, operations[one.name])
    with capsys.disabled():
        print(f"\nschemathesis, share {share}: {total} cases, {app.answered_count} requests")
    assert not failures, "\n".join(failures)
    assert app.answered_count >= total >= lowest


def test_schemathesis_finds_planted_faults(
    app: InProcessServer,
    gateway: Gateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crash(_: Request) -> Response:
        raise ZeroDivisionError

    def another_status(_: Request) -> Response:
        return json_response({}, 418)

    def another_shape(_: Request) -> Response:
        return json_response({"scopes": "none"})

    faults = {
        "GET /memories/list": crash,
        "GET /api/v1/usage": another_status,
        "GET /api/v1/scopes": another_shape,
    }
    for name, serve in faults.items():
        monkeypatch.setitem(query.ROUTES, name, replace(query.ROUTES[name], handler=serve))
    token = gateway.key(rights=("read", "admin"))
    only = [part for name in faults for part in ("--include-path", name.split()[1])]
    report = schemathesis(token, tmp_path, "fuzzing", "--max-examples", "2", *only)
    assert app.answered_count >= report.cases > 0
    for kind in ("Server error", "Undocumented status code", "Response violates schema"):
        assert kind in report.output
