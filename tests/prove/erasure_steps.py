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
    (store_derived, "lock_scopes_of_events"),
    (store, "delete_decisions_of_unfolded_chains"),
    (store_derived, "list_chains_of_topic_leaves"),
    (store_derived, "lock_chains_of_events"),
    (erase_events, "lock_graph"),
    (store, "erase_events"),
    (store_derived, "unlink_events_from_chains_and_trees"),
    (store_memories, "delete_persona_rows_of_events"),
    (store_derived, "queue_chains_for_rebuild"),
    (store, "blank_derived_texts"),
    (store_derived, "delete_or_hide_chains"),
    (store_derived, "delete_or_queue_trees"),
    (store_derived, "delete_graph_observations"),
    (store_derived, "delete_field_revisions"),
    (erase_events, "recompute_nodes_and_edges"),
    (store, "add_erasure_counts"),
    (store, "mark_erasure_cleared"),
)
"""What turns events into tombstones, in the request or in the job."""

CLEARING_MARKED: Steps = (
    (store_selections, "list_erasure_marks"),
    (store_selections, "list_event_ids_in_order"),
    *CLEARING,
    (store_selections, "delete_finished_mark"),
)

FORMING: Steps = (
    (retry_enrichment, "retry_enrichment"),
    (store_job, "count_failed_rebuild"),
    (store_job, "mark_chain_rebuilt"),
    (store_failures, "record_retryable_failure"),
    (store_job, "queue_failed_job_for_retry"),
)
"""What forms chains again from the events that they keep."""

COMPLETING: Steps = (
    (BlobStore, "erase_exports"),
    (store_job, "list_objects_to_remove"),
    (store_job, "list_payloads_in_use"),
    (BlobStore, "erase"),
    (store_job, "list_unfinished_removals"),
    (store_archiving, "begin_payload_removal"),
    (store_job, "mark_objects_for_removal"),
    (store_archiving, "end_payload_removal"),
    (store_job, "mark_objects_removed"),
    (store_job, "list_chains_to_rebuild"),
    (store_vacuum, "list_unvacuumed_erasures"),
    (store_vacuum, "read_latest_vacuum_run"),
    (store_vacuum, "count_vacuum_attempt"),
    (store_vacuum, "vacuum_tables_with_memory"),
    (store_vacuum, "record_vacuum"),
    (store_job, "count_remaining_work"),
    (store_job, "postpone_erasure"),
    (store, "list_erased_events"),
    (receipts, "build_receipt"),
    (receipts, "sign_receipt"),
    (store_job, "complete_erasure"),
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
    (store, "insert_erasure"),
    (store, "delete_uploads_of_writer"),
    (store, "mark_erasure_hidden"),
)

MARKING: Steps = (
    (store_sessions, "lock_session_scopes"),
    (store_selections, "hide_selected_events"),
    (store_sessions, "delete_sessions"),
    (store, "add_erasure_counts"),
)

CASES: dict[str, tuple[dict[str, object], Steps, Steps]] = {
    "at once": ({"participant": WHO[0]}, (*RECORDING, *CLEARING), (*FORMING, *COMPLETING)),
    "marked": ({"tenant": True}, (*RECORDING, *MARKING), (*CLEARING_MARKED, *COMPLETING)),
}
"""What is erased, the steps of the request and those of the job: what somebody said, in chains with
what somebody else said; and everything, which a mark hides until the job clears it."""
