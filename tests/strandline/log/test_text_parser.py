"""A text made to keep the full text parser busy costs its writer and its scope no more than any."""

import pytest

from strandline.local.lambda_context import LambdaContext
from tests import support
from tests.strandline.sessions.session_calls import begin, interact
from tests.support import Gateway, Reply, ScratchDatabase, user_message
from tests.uploads import BATCH, EVENTS_PATH, citing, upload_file

QUERY, RECALL = "/api/v1/events/query", "/api/v1/recall"
SHAPES = {
    "digits": "1_" * 32_000,
    "snake": "a_" * 32_768,
    "codes": "1-a-" * 16_000,
    "comments": "<!-- " * 13_000,
    "folders": "./" * 32_000,
    "homes": "/~" * 32_000,
}
GROUPS = "-".join(f"{n * 7919 % 65536:04x}" for n in range(209_000))[: 1024 * 1024].encode()
SECONDS = 5

# In place of what calls the parser: nothing that is handed over may hold a long joined run.
_GUARDS = """
create function is_short(p_text text) returns boolean language plpgsql immutable as $$
begin
    if p_text ~ '(?:[a-z0-9]{0,4}[-_./~]){65}' or p_text ~ '<!--' then
        raise exception 'a long run reaches the parser';
    end if;
    return true;
end $$;
create or replace function event_tsvector(p_label text, p_text text) returns tsvector
language sql immutable as $$
    select to_tsvector('pg_catalog.english', p_text) where is_short(p_text) $$;
create or replace function question_words(p_question text, p_limit int) returns text[]
language sql immutable as $$
    select array['buoy'] where is_short(p_question) $$;
create or replace function required_tsquery(p_text text) returns tsquery
language sql immutable as $$
    select 'buoy'::tsquery where is_short(p_text) $$;
"""


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key(user="user:alice")


def short_context(name: str, _seconds: float) -> LambdaContext:
    """What a request is given: SECONDS are left to it, and so to its statements."""
    return LambdaContext(name, SECONDS)


def append(gateway: Gateway, key: str, text: str) -> Reply:
    """On a day whose number stands in no question here: an event is found by its date, too."""
    event = user_message(text, occurred_at="2026-05-28T12:00:00Z")
    reply = gateway.call("POST", EVENTS_PATH, event, key=key)
    assert reply.status == 201, reply.text
    return reply


def recall_texts(gateway: Gateway, key: str, words: str) -> list[str]:
    """The events that hold one of the words, best first."""
    reply = gateway.call("POST", RECALL, {"query": words}, key=key)
    assert reply.status == 200, reply.text
    return [h["event_id"] for h in reply.body["hits"] if set(h["why"]) - {"meaning"}]


def count_listed(gateway: Gateway, key: str, text: str) -> int:
    reply = gateway.call("POST", QUERY, {"text": text}, key=key)
    assert reply.status == 200, reply.text
    return sum(len(scope["events"]) for scope in reply.body["scopes"])


@pytest.mark.parametrize("shape", SHAPES)
def test_text_parser_takes_long_run_in_time(
    gateway: Gateway, key: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a statement's time-out of five seconds; it took Postgres up to twenty."""
    monkeypatch.setattr(support, "LambdaContext", short_context)
    append(gateway, key, SHAPES[shape][: 64 * 1024])


def test_text_parser_gets_large_payload_in_pieces(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    """By what the parser is given, not by the clock: 1 MiB takes seconds on a busy machine."""
    upload = upload_file(gateway, key, GROUPS, mime_type="text/plain")
    reply = gateway.call("POST", EVENTS_PATH, citing(upload["cid"], name="as it is"), key=key)
    assert reply.status == 201, reply.text
    scratch_db.rows(_GUARDS)
    reply = gateway.call("POST", EVENTS_PATH, citing(upload["cid"], name="guarded"), key=key)
    assert reply.status == 201, reply.text


@pytest.mark.parametrize("run", ["1_" * 480, "a-1-" * 240, "./" * 480, "<!-- " * 190])
def test_text_parser_is_guarded_from_long_runs(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str, run: str
) -> None:
    scratch_db.rows(_GUARDS)
    append(gateway, key, run)
    name = begin(gateway, key)["session_id"]
    assert interact(gateway, key, name, user_message=run, agent_response=run).status == 201
    batch = gateway.call(
        "POST", BATCH, {"events": [user_message(run), user_message(f"x{run}")]}, key=key
    )
    assert [r["status"] for r in batch.body["results"]] == [201, 201], batch.text
    upload = upload_file(gateway, key, run.encode(), mime_type="text/plain")
    citation = citing(upload["cid"], name=run[:900].replace("/", "~"))
    assert gateway.call("POST", EVENTS_PATH, citation, key=key).status == 201
    recall_texts(gateway, key, run)
    count_listed(gateway, key, run)
    context = gateway.call("GET", f"/api/v1/sessions/{name}/context", query={"query": run}, key=key)
    assert context.status == 200, context.text


def test_text_parser_finds_words_in_long_run(gateway: Gateway, key: str) -> None:
    run = "_".join(["mast"] * 70 + ["keel"] + ["mast"] * 70)
    append(gateway, key, "an oar")
    long = append(gateway, key, f"lighthouse {run} harbour").body["event_id"]
    for word in ("lighthouse", "harbour", "keel", run):
        assert recall_texts(gateway, key, word) == [long], word
        assert count_listed(gateway, key, word) == 1, word


@pytest.mark.parametrize(
    "name",
    [
        "first_mate_of_watch",
        "https://host.example.com:8443/a/b/c-d/e_f.html?x=1&y=2",
        "me@mail.example.org",
        "550e8400-e29b-41d4-a716-446655440000",
        "/usr/lib/buoy/deep-water.conf",
        "1.2.3",
    ],
)
def test_text_parser_finds_names_and_addresses(gateway: Gateway, key: str, name: str) -> None:
    append(gateway, key, "an oar")
    holder = append(gateway, key, f"look at {name} today").body["event_id"]
    assert recall_texts(gateway, key, name) == [holder]
    assert count_listed(gateway, key, f'"{name}"') == 1
