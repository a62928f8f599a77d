"""Questions to the topic index."""

from typing import Any

import pytest

from tests.strandline.topics.snapshots import publish
from tests.strandline.topics.talks import converse, fold
from tests.support import Gateway, ScratchDatabase

PATH = "/api/v1/references/query"
ALICE, BOB, CAROL, HELPER = "user:alice", "user:bob", "user:carol", "agent:helper"


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key(user=ALICE)


def ask(gateway: Gateway, key: str, **body: Any) -> Any:
    reply = gateway.call("POST", PATH, body, key=key)
    assert reply.status == 200, reply.text
    return reply.body


def test_a_question_is_answered_from_the_snapshot_and_the_fresh_tail(
    gateway: Gateway, scratch_db: ScratchDatabase, key: str
) -> None:
    converse(gateway, key)
    fold(gateway, scratch_db)
    print(
        scratch_db.rows(
            "select position, first_seq, last_seq, topic, summary, rejected from chain_versions"
        )
    )
    publish(scratch_db)
    import json

    print(json.dumps(ask(gateway, key, query="Which paint for the buoy?"), indent=1)[:6000])
    print(ask(gateway, key, query="Which paint for the buoy?", format="text")["text"])
    print(ask(gateway, key, format="text")["text"])
    assert 0
