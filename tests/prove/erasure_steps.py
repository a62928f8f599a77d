"""The steps of an erasure, in their order, and what they erase."""

from collections.abc import Sequence
from typing import Any

from strandline.aws.blobs import BlobStore
from strandline.chains import retry_enrichment, store_archiving
from strandline.erasure import (
    erase_events,
    receipts,
    store,
    store_derived,
    store_job,
    store_selections,
    store_sessions,
    store_vacuum,
)
from strandline.jobs import store_failures
from strandline.personas import store_memories
from tests.chains import warm
from tests.graph_calls import Graph, topic
from tests.graph_files import export
from tests.prove.erasure_stores import ERASED_WORD, WHO
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
    (erase_events, "recompute_nodes_and_edges"),
    (store, "add_counts"),
    (store, "mark_cleared"),
)
"""What turns events into tombstones, in the request or in the job."""

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

CASES: dict[str, tuple[dict[str, object], Steps, Steps]] = {
    "at once": ({"participant": WHO[0]}, (*RECORDING, *CLEARING), (*FORMING, *COMPLETING)),
    "marked": ({"tenant": True}, (*RECORDING, *MARKING), (*CLEARING_MARKED, *COMPLETING)),
}
"""What is erased, the steps of the request and those of the job: what somebody said, in chains with
what somebody else said; and everything, which a mark hides until the job clears it."""
