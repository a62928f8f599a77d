"""Every route has an example that works: what the document shows is what the service does."""

import json
from dataclasses import replace

import pytest

from strandline.apidocs import examples
from strandline.embeddings.embedder import Embedder
from strandline.function_specs import FUNCTIONS
from tests.strandline.apidocs.example_calls import Story, renew_text
from tests.support import Gateway

EXAMPLES = examples.load_examples()


def test_examples_cover_every_route() -> None:
    routes = {route for fn in FUNCTIONS if fn.protocol == "REST" for route in fn.routes}
    assert {example.operation for example in EXAMPLES} == routes


def test_examples_match_service_answers(
    gateway: Gateway, embedder: Embedder, request: pytest.FixtureRequest
) -> None:
    """With `--renew-examples` (`make examples`) the file gets the answers of now."""
    embedder.embed(["warm"], timeout=60.0)
    story = Story(gateway)
    if not request.config.getoption("--renew-examples"):
        for example in EXAMPLES:
            story.tell(example)
        return
    text = examples.FILE.read_text()
    examples.FILE.write_text(renew_text(text, [story.renew(example)[1] for example in EXAMPLES]))


def test_examples_show_graph_of_session_search() -> None:
    operation = "POST /api/v1/sessions/{session_id}/context/search"
    (search,) = [example for example in EXAMPLES if example.operation == operation]
    graph = search.answer["graph"]
    assert graph["nodes"]
    assert graph["edges"]
    assert all(item["event_ids"] for item in (*graph["nodes"], *graph["edges"]))


def test_examples_renewal_changes_only_differences(gateway: Gateway) -> None:
    """A field that is new, one that is gone and a value that changed; the rest stays, ids too."""
    first = EXAMPLES[0]
    read = next(e for e in EXAMPLES if e.path.get("event_id") == first.answer["event_id"])
    old = {**read.answer, "gone": 1, "content": "Something else."}
    del old["channel"]
    story = Story(gateway)
    story.tell(first)
    _, renewed = story.renew(replace(read, answer=old))
    assert renewed == read
    text = examples.FILE.read_text()
    assert renew_text(text, EXAMPLES) == text
    stale = text.replace('"channel": "http",', "", 1)
    assert stale != text
    assert json.loads(renew_text(stale, EXAMPLES)) == json.loads(text)


def test_examples_check_notices_wrong_example(gateway: Gateway) -> None:
    append = next(e for e in EXAMPLES if e.operation == "POST /api/v1/events")
    for wrong in (
        replace(append, status=200),
        replace(append, answer={**append.answer, "seq": 7}),
        replace(append, answer={**append.answer, "more": None}),
        replace(append, answer={**append.answer, "event_id": append.answer["cid"], "cid": "x"}),
        replace(append, body={**append.body, "content": "Something else."}),
    ):
        with pytest.raises(AssertionError):
            Story(gateway).tell(wrong)
