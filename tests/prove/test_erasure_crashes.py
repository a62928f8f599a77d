"""A crash before each step of an erasure, one after the other: of the request nothing is stored,
and the job goes on with what is left."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from strandline.aws.blobs import BlobStore
from strandline.chains import retry_enrichment, store_archiving
from strandline.erasure import (
    erase_events,
    eraser,
    receipts,
    store,
    store_derived,
    store_job,
    store_selections,
    store_sessions,
    store_vacuum,
)
from strandline.jobs import store_failures
from strandline.local.aws import LocalAws
from strandline.personas import store_memories
from tests.graph_calls import Graph, topic
from tests.graph_files import export
from tests.prove.erasure_stores import ERASED_WORD, ERASURES, WHO, every_byte
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.strandline.graph.test_promoter import warm
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, ScratchDatabase, user_message
from tests.uploads import cid_of, citing, upload_file

type Steps = Sequence[tuple[Any, str]]

CLEARING: Steps = (
    (store_derived, "lock_scopes"),
    (store, "drop_unfolded_decisions"),
    (store_derived, "list_leaf_chains"),
    (store_derived, "lock_chains"),
    (erase_events, "lock_graph"),
    (store, "erase_events"),
    (store_derived, "remove_from_chains_and_trees"),
    (store_memories, "delete_event_traces"),
    (store_derived, "queue_chains"),
    (store, "blank_derived_texts"),
    (store_derived, "delete_or_hide_chains"),
    (store_derived, "delete_or_queue_trees"),
    (store_derived, "delete_observations"),
    (store_derived, "delete_revisions"),
    (erase_events, "compute_from_observations"),
    (store, "add_counts"),
    (store, "mark_cleared"),
)
"""What turns events into tombstones, in the request or in the job."""
RECORDING: Steps = (
    (store_selections, "list_event_ids"),
    (store, "add_erasure"),
    (store, "forget_uploads"),
    (store, "mark_hidden"),
)
MARKING: Steps = (
    (store_sessions, "lock_session_scopes"),
    (store_selections, "add_marks"),
    (store_sessions, "delete_sessions"),
    (store, "add_counts"),
)
CLEARING_MARKED: Steps = (
    (store_selections, "list_marks"),
    (store_selections, "list_event_ids_in_order"),
    *CLEARING,
    (store_selections, "delete_mark"),
)
FORMING: Steps = (
    (retry_enrichment, "retry_enrichment"),
    (store_job, "count_attempt"),
    (store_job, "mark_chain_formed"),
    (store_failures, "record_failure"),
    (store_job, "queue_retry"),
)
"""What forms chains again from the events that they keep."""
COMPLETING: Steps = (
    (BlobStore, "erase_exports"),
    (store_job, "list_payloads"),
    (store_job, "list_cited"),
    (BlobStore, "erase"),
    (store_job, "collect_begun_removals"),
    (store_archiving, "begin_payload_removal"),
    (store_job, "record_removal_start"),
    (store_archiving, "end_payload_removal"),
    (store_job, "mark_payloads_removed"),
    (store_job, "list_chains"),
    (store_vacuum, "list_pending"),
    (store_vacuum, "read_vacuum_state"),
    (store_vacuum, "count_vacuum_attempt"),
    (store_vacuum, "vacuum"),
    (store_vacuum, "record_vacuum"),
    (store_job, "count_remaining"),
    (store_job, "postpone"),
    (store, "list_events"),
    (receipts, "build_receipt"),
    (receipts, "sign"),
    (store_job, "complete"),
)


@pytest.fixture(scope="module")
def embedder() -> WordEmbedder:
    return WordEmbedder("words/64", 64)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request runs beside the last runs of the job."""
    for wait in ("_REQUEST_WAIT", "_VACUUM_SPACING"):
        monkeypatch.setattr(eraser, wait, timedelta(0))


class Crashes:
    """Each of these steps raises once, when it is reached, and does nothing then."""

    def __init__(self, patch: pytest.MonkeyPatch, steps: Steps) -> None:
        self.ahead = {name for _, name in steps}
        for place, name in steps:
            patch.setattr(place, name, self._crashing(name, getattr(place, name)))

    def _crashing(self, name: str, original: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            if name in self.ahead:
                self.ahead.remove(name)
                raise RuntimeError(name)
            return original(*arguments, **options)

        return step


def tell(gateway: Gateway, key: str, base: ScratchDatabase) -> None:
    """A session with a large text, a file, a topic and its field, in a chain with another event;
    and an export."""

    def append(body: dict[str, object]) -> None:
        fields = {**body, "session_id": "s"}
        assert gateway.call("POST", "/api/v1/events", fields, key=key).status == 201

    append({"participants": WHO, "role": "agent", "content": "My sister sails at nine."})
    for n in range(3):
        append(user_message(f"My sister {ERASED_WORD} sails at {n}.", *WHO))
    append(user_message(f"{ERASED_WORD} " * 7000, *WHO))
    data = f"{ERASED_WORD} in a file".encode()
    upload_file(gateway, key, data, mime_type="text/plain", name=f"{ERASED_WORD}.txt")
    append(citing(cid_of(data), *WHO))
    fold_all(gateway, base)
    warm(base)
    assert gateway.run_job("promoter")["chains_promoted"] == 1
    build(gateway)
    graph = Graph(gateway, key, WHO)
    (boats,) = graph.create(topic(f"{ERASED_WORD} boats"))
    graph.write("POST", f"topics/{boats}/fields/state", value=ERASED_WORD)
    export(gateway, key, *WHO)


STORED_ROWS = """
    select count(*) filter (where erased_at is null),
        (select count(*) from erasures), (select count(*) from erased_events)
    from events where %s::text is null or speaker = %s
"""
CASES: dict[str, tuple[dict[str, object], Steps, Steps]] = {
    "at once": ({"participant": WHO[0]}, (*RECORDING, *CLEARING), (*FORMING, *COMPLETING)),
    "marked": ({"tenant": True}, (*RECORDING, *MARKING), (*CLEARING_MARKED, *COMPLETING)),
}
"""What is erased, the steps of the request and those of the job: what somebody said, in chains with
what somebody else said; and everything, which a mark hides until the job clears it."""


@pytest.mark.proof
@pytest.mark.parametrize("case", CASES)
def test_a_crash_at_each_step_resumes(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    selector, request_steps, job_steps = CASES[case]
    key = gateway.key(rights=["read", "write", "admin", "erase"])
    tell(gateway, key, scratch_db)
    speaker = selector.get("participant")
    if case == "marked":
        monkeypatch.setattr(erase_events, "EVENTS_AT_ONCE", 3)
    ((message, _, _),) = before = scratch_db.rows(STORED_ROWS, speaker, speaker)

    crashes = Crashes(monkeypatch, request_steps)
    while (reply := gateway.call("POST", ERASURES, selector, key=key)).status == 500:
        assert scratch_db.rows(STORED_ROWS, speaker, speaker) == before, "nothing of it is stored"
    assert (reply.status, crashes.ahead) == (202, set()), reply.text
    assert scratch_db.rows(STORED_ROWS, speaker, speaker) != before

    path = f"{ERASURES}/{reply.body['erasure_id']}"
    crashes = Crashes(monkeypatch, job_steps)
    for _ in range(2 * len(job_steps)):
        gateway.run_job("eraser", "acme")
        payloads = ("blob_removals", "erased_payloads")
        for table in () if "postpone" in crashes.ahead else payloads:
            later = f"update {table} set marked_at = marked_at - interval '1 hour'"  # noqa: S608
            scratch_db.rows(later)
        if scratch_db.rows("select 1 from erasures where completed_at is not null"):
            break
    assert crashes.ahead == set()
    body = gateway.call("GET", path, key=key).body
    receipt = body["receipt"]
    assert receipts.verify(body["public_key"], receipt, body["signature"])
    assert (receipt["event_count"], receipt["counts"]["events"]) == (message, message)
    assert receipt["vacuumed_at"] is not None
    assert ERASED_WORD not in every_byte(scratch_db, aws)
