"""Bring a tenant to read the space of the configured embedding model.

While another model's space is read, the configured one's is filled beside it. Once it is complete,
the answers in both are compared, and the tenant reads the new one from one commit to the next. A
day later the vectors that it left are removed. Each step is told from the database: whoever is
killed, the next sweep goes on.
"""

from datetime import datetime, timedelta

from strandline.background import store_switches
from strandline.background.calibrate_space import ensure_calibrated
from strandline.background.compare_spaces import Comparison, compare_spaces
from strandline.background.fill_space import count_in_sums, fill_space
from strandline.config import get_settings
from strandline.db.database import Caller, TenantDb
from strandline.errors import EmbeddingRefused, EmbeddingUnavailable
from strandline.graph.nodes import store_missing_vectors
from strandline.jobs.worker_resources import WorkerResources
from strandline.log import store_work
from strandline.observability import logger
from strandline.tenants import store_spaces
from strandline.tenants.store_spaces import ReadSpace, SpaceSwitch
from strandline.topics.store_builds import request_regrowth

KEPT = timedelta(days=1)
"""How long the vectors of a space that was left are kept: who goes back to its model within this
time has them at once."""
_ROWS_PER_COMMIT = 1000
_MAX_BEHIND = 32
"""The switch waits until at most so many events came in since the space was complete. They are
found like events just appended, until the worker has embedded them."""
_ATTEMPTS = 5
"""How often in a row the newest events are filled before a switch is left to the next sweep."""
_REFUSED_SHARE = 0.01
"""A model that refuses a larger share of texts than the one before is not switched to by itself."""


def advance(worker: WorkerResources, tenant: str, now: datetime) -> int:
    """Go on with a tenant's switch to the space of the worker's model, which is the configured one,
    as far as there is time. Returns how many vectors were stored. A model that does not answer
    leaves the tenant with the space that it reads; the switch tells why."""
    access = worker.database.connect_as(Caller.background(tenant))
    state, target = store_spaces.read_space(access), worker.embedder.space
    if state.reading_space is None:
        return 0
    count = 0
    if state.reading_space == target:
        with access.transaction():
            store_switches.end_other_switches(access, target)
    else:
        with access.transaction():
            store_switches.begin_switch(access, state.reading_space, target)
        try:
            _settle_nodes(worker, access, state.reading_space)
            count = _fill_and_switch(worker, access, state, state.reading_space, now)
            failure = None
        except EmbeddingUnavailable as error:
            logger.warning("new embedding space not filled", extra={"error": error.message})
            failure = error.message
        with access.transaction():
            store_switches.record_failure(access, failure)
    _settle(worker, access, now)
    return count


def _fill_and_switch(
    worker: WorkerResources, access: TenantDb, state: ReadSpace, reading: str, now: datetime
) -> int:
    tenant, target = access.caller.tenant, worker.embedder.space
    count, is_complete = fill_space(worker, tenant, now)
    if not is_complete:
        return count
    try:
        ensure_calibrated(access, worker.embedder, worker.deadline)
    except EmbeddingRefused as error:
        raise EmbeddingUnavailable(error.message) from None
    _compare_once(worker, access, reading, now)
    if _is_held(access, state, reading, target):
        return count
    for _ in range(_ATTEMPTS):
        late_count, is_complete = fill_space(worker, tenant, now)
        count += late_count
        if not is_complete or _switch(access, reading, target):
            break
    return count


def _switch(access: TenantDb, reading: str, target: str) -> bool:
    with access.transaction():
        has_switched = store_switches.try_switch(access, reading, target, _MAX_BEHIND)
        if has_switched:
            store_work.enqueue_unfinished_scopes(access, target)
    if has_switched:
        logger.info("embedding space switched", extra={"from": reading, "to": target})
    return has_switched


def _compare_once(worker: WorkerResources, access: TenantDb, reading: str, now: datetime) -> None:
    """Compare the answers in both spaces, unless that was done. Where the model of the space that
    is read cannot be asked, there is nothing to compare with."""
    latest = store_spaces.read_latest_switch(access)
    if latest is None or latest.compared_at is not None:
        return
    old = worker.embedders.find(worker.embedder, reading)
    comparison = Comparison(0, None, None)
    if old is not None:
        comparison = compare_spaces(worker, access.caller.tenant, old, worker.embedder, now)
    with access.transaction():
        store_switches.record_comparison(access, *comparison)


def _is_held(access: TenantDb, state: ReadSpace, reading: str, target: str) -> bool:
    """Whether the tenant is to read the new space only when an operator says so: by a setting, or
    because its model refuses texts that the one before accepts."""
    if state.embedding_switch is not None:
        return state.embedding_switch == "held"
    if get_settings().embedding_switch == "held":
        return True
    new = store_spaces.count_filled(access, target)
    lost = new.refused - store_spaces.count_filled(access, reading).refused
    if lost > _REFUSED_SHARE * new.all_events:
        raise EmbeddingUnavailable(
            f"The new model refuses {lost} texts of {new.all_events} that the one in use accepts."
            " Set the tenant's embedding_switch to auto to switch nonetheless."
        )
    return False


def _settle(worker: WorkerResources, access: TenantDb, now: datetime) -> None:
    """After a switch: let the new vectors of nodes take the old ones' place, have the topic trees
    grown again, and remove the vectors that were left."""
    leftovers = store_spaces.list_switches_with_leftovers(access, now + KEPT)
    if not leftovers:
        return
    reading = store_spaces.read_space(access).reading_space
    if reading is None:
        return
    _settle_nodes(worker, access, reading)
    with access.transaction():
        request_regrowth(access, reading)
    count_in_sums(worker, access, reading)
    for switch in leftovers:
        if worker.is_out_of_time():
            return
        _remove_left(worker, access, switch, {reading, worker.embedder.space}, now)


def _settle_nodes(worker: WorkerResources, access: TenantDb, reading: str) -> None:
    while not worker.is_out_of_time():
        with access.transaction():
            count = store_missing_vectors.settle_next_vectors(
                access, reading, worker.embedder.space, _ROWS_PER_COMMIT
            )
        if count < _ROWS_PER_COMMIT:
            return


def _remove_left(
    worker: WorkerResources,
    access: TenantDb,
    switch: SpaceSwitch,
    used_spaces: set[str],
    now: datetime,
) -> None:
    """Remove the vectors of the space that a switch left, or did not come to, after KEPT."""
    former_space = switch.from_space if switch.switched else switch.to_space
    if former_space in used_spaces or switch.ended_at is None or switch.ended_at > now - KEPT:
        return
    while not worker.is_out_of_time():
        with access.transaction():
            count = store_switches.remove_vectors(access, former_space, _ROWS_PER_COMMIT)
            if count == 0:
                store_switches.record_removal(access, former_space)
        if count == 0:
            return
