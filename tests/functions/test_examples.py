"""Every route has an example that works: what the document shows is what the service does."""

from dataclasses import replace

import pytest

from strandline.apidocs import examples
from strandline.deployment import FUNCTIONS
from strandline.embeddings.embedder import Embedder
from tests.functions.example_calls import Story
from tests.support import Gateway

EXAMPLES = examples.load_examples()


def test_every_route_has_an_example() -> None:
    routes = {route for fn in FUNCTIONS for route in fn.routes}
    assert {example.operation for example in EXAMPLES} == routes


def test_every_example_answers_as_it_says(gateway: Gateway, embedder: Embedder) -> None:
    embedder.embed(["warm"], timeout=60.0)
    story = Story(gateway)
    for example in EXAMPLES:
        story.tell(example)


def test_an_example_that_says_something_else_is_noticed(gateway: Gateway) -> None:
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
