"""Record the sonas that new events name in their metadata, for the worker that embeds these
events."""

from collections.abc import Sequence
from uuid import UUID

from strandline.db.database import Caller, Database
from strandline.observability import logger
from strandline.personas import store_memories


def record_named_sonas(
    database: Database, tenant: str, event_ids: Sequence[UUID], space: str
) -> int:
    """Record the sonas that these events name by id as `metadata.sona`. An event can name only a
    sona of its own writer; other names are ignored. Idempotent. Call it before the vectors of the
    events are stored, so that a crash loses nothing. Returns how many events are new to their
    sona."""
    access = database.connect_as(Caller.background(tenant))
    added_count = 0
    for writer, sona_id, events in _group_by_writer_and_sona(
        store_memories.list_sona_mentions(access, event_ids)
    ):
        own = database.connect_as(Caller(tenant, (), writer))
        with own.transaction():
            added_count += len(store_memories.insert_sona_memories(own, sona_id, events, space))
    if added_count:
        logger.info("events active in sonas", extra={"events": added_count})
    return added_count


def _group_by_writer_and_sona(
    rows: Sequence[store_memories.SonaMention],
) -> list[tuple[str, UUID, list[UUID]]]:
    """Group the events by writer and sona."""
    groups: dict[tuple[str, UUID], list[UUID]] = {}
    for row in rows:
        try:
            sona_id = UUID(row.sona)
        except ValueError:
            continue
        groups.setdefault((row.writer, sona_id), []).append(row.event_id)
    return [(writer, sona_id, events) for (writer, sona_id), events in groups.items()]
