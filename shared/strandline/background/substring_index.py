"""Index the texts of new events by their substrings."""

import time
from collections.abc import Sequence
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.jobs.worker_resources import WorkerResources
from strandline.log import store_substring_index

BATCH = 32
"""How many events are indexed between two commits: seconds where each holds 64 KiB."""


def index_scopes(worker: WorkerResources, access: TenantDb, scope_ids: Sequence[UUID]) -> bool:
    """Index the events of these scopes that are not indexed yet, for at most a slice of time.
    Returns whether that slice was too short."""
    slice_end = time.monotonic() + worker.slice_seconds
    while True:
        with access.transaction():
            event_count = store_substring_index.index_texts(access, scope_ids, BATCH)
        if event_count < BATCH or worker.is_out_of_time():
            return False
        if time.monotonic() > slice_end:
            return True
