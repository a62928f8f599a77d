"""Sonas: look up or make one, rename it, merge it, and record where it was active."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.cursors import Cursors, Position
from strandline.db.database import Caller, Database, TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.vector_formats import pack_vector
from strandline.errors import Invalid, NotFound, StateConflict
from strandline.observability import logger
from strandline.personas import store_memories, store_sonas
from strandline.personas.schemas import (
    RecordedSonaMemories,
    SonaDetail,
    SonaFound,
    SonaOut,
    SonaPage,
)
from strandline.personas.store_sonas import Sona
from strandline.recall import store_sonas as recall_sonas
from strandline.recall.query_vector import embed_query
from strandline.recall.sona_lookup import hash_normalized_name, require_sona_by_id_or_name

_MAX_NAMES_EMBEDDED = 64
"""The most names without a vector that one lookup embeds."""


class NameMatchSettings(NamedTuple):
    """How names are compared by meaning."""

    embedder: Embedder
    min_cosine: float
    """The least cosine at which two names mean the same sona."""
    timeout: float
    """How long to wait for a name's vector, in seconds."""


def find_or_make_sona(access: TenantDb, name: str, nearness: NameMatchSettings) -> SonaFound:
    """The caller's sona of this name, else the one whose name is nearest in meaning if it is near
    enough, else a new one. Two concurrent callers make one. If no embedding arrives in time, names
    are compared exactly."""
    _embed_missing_names(access, nearness)
    vector, _ = embed_query(nearness.embedder, name, nearness.timeout, "text")
    space, name_key = nearness.embedder.space, hash_normalized_name(name)
    with access.transaction():
        store_sonas.lock_writer_sonas(access)
        match_id = recall_sonas.find_sona_by_name_key(access, name_key)
        if match_id is not None:
            return SonaFound(**_to_sona_fields(_require_sona(access, match_id)), found_by="name")
        if vector is not None:
            match_id = recall_sonas.find_sona_by_nearest_name(
                access, vector, space, nearness.min_cosine
            )
            if match_id is not None:
                return SonaFound(
                    **_to_sona_fields(_require_sona(access, match_id)), found_by="meaning"
                )
        sona_id = uuid7()
        store_sonas.insert_sona(access, sona_id)
        store_sonas.replace_sona_names(access, sona_id, [(name_key, name)])
        if vector is not None:
            name_row = store_sonas.UnembeddedName(name_key, name)
            store_sonas.store_name_vectors(access, space, [(name_row, pack_vector(vector))])
        return SonaFound(**_to_sona_fields(_require_sona(access, sona_id)), found_by="new")


def resolve_sona(
    access: TenantDb, sona: str, nearness: NameMatchSettings, *, makes: bool
) -> tuple[UUID, str]:
    """The id and the first name of the caller's sona with this id or name. Raises Invalid if there
    is none, except for a name if `makes` is set."""
    try:
        UUID(sona)
    except ValueError:
        if makes:
            name = " ".join(sona.split())
            if not name:
                raise Invalid("sona: must not be blank", field="sona") from None
            sona_match = find_or_make_sona(access, name, nearness)
            return sona_match.uuid, sona_match.names[0]
    sona_id = require_sona_by_id_or_name(
        access,
        nearness.embedder,
        sona,
        min_cosine=nearness.min_cosine,
        timeout=nearness.timeout,
    )
    return sona_id, _require_sona(access, sona_id).names[0]


def _embed_missing_names(access: TenantDb, nearness: NameMatchSettings) -> None:
    """Embed names that have no vector in this space, because the model was unavailable or has
    changed."""
    space = nearness.embedder.space
    names = store_sonas.list_unembedded_names(access, space, _MAX_NAMES_EMBEDDED)
    if not names:
        return
    try:
        vectors = nearness.embedder.embed([n.name for n in names], timeout=nearness.timeout)
    except Exception as error:  # names are compared exactly if the model fails
        logger.warning("names of sonas not embedded", extra={"error": type(error).__name__})
        return
    name_vectors = map(pack_vector, vectors)
    with access.transaction():
        store_sonas.store_name_vectors(access, space, list(zip(names, name_vectors, strict=True)))


def get_sona(access: TenantDb, sona_id: UUID, space: str, *, with_centroid: bool) -> SonaDetail:
    """A sona with its centroid over what the caller sees. For a merged sona, the one that it was
    merged into. Raises NotFound."""
    sona = _require_sona(access, sona_id)
    place = store_sonas.read_sona_centroid(access, sona.sona_id, space)
    centroid = place.centroid if with_centroid else None
    return SonaDetail(
        **_to_sona_fields(sona),
        memories=place.memories,
        space=space,
        centroid=None if centroid is None else json.loads(centroid),
    )


def list_sonas(access: TenantDb, limit: int, cursor: str | None) -> SonaPage:
    """The caller's sonas, newest first. Raises Malformed for an invalid cursor."""
    caller = access.caller
    cursors = Cursors(access.sealer, caller.tenant, "sonas/list", caller.writer)
    rows = store_sonas.list_newest_sonas(access, cursors.decode(cursor), limit)
    page = [SonaOut(**_to_sona_fields(row)) for row in rows]
    if len(rows) < limit:
        return SonaPage(sonas=page, next_cursor=None)
    last = rows[-1]
    after = Position(last.pg_snapshot, last.created_at, last.sona_id)
    return SonaPage(sonas=page, next_cursor=cursors.encode(after))


def rename_sona(access: TenantDb, sona_id: UUID, names: Sequence[str]) -> SonaOut:
    """Replace all names of a sona. Raises NotFound; StateConflict if another sona of the caller has
    one of them; Invalid for a name that is given twice."""
    name_pairs = [(hash_normalized_name(name), name) for name in names]
    if len({key for key, _ in name_pairs}) < len(name_pairs):
        raise Invalid("names: a name is given twice", field="names")
    with access.transaction():
        store_sonas.lock_writer_sonas(access)
        sona = _require_sona(access, sona_id)
        if store_sonas.replace_sona_names(access, sona.sona_id, name_pairs):
            raise StateConflict(
                "names: another sona of yours has one of these; merge the two, or rename that one "
                "first",
                field="names",
            )
        return SonaOut(**_to_sona_fields(_require_sona(access, sona.sona_id)))


def merge_sonas(
    database: Database, caller: Caller, deadline: float, from_id: UUID, into_id: UUID
) -> SonaOut:
    """Merge a sona into another one: its names lead there, and its memories count there. Its thread
    ends, but can still be read under its own id: an order of two threads would be made up. Raises
    NotFound, or Invalid if `into` is not one of the caller's sonas."""
    # in all scopes: an event of both sonas counts once, no matter who can see it
    access = database.connect_as(Caller(caller.tenant, (), caller.writer), deadline)
    with access.transaction():
        store_sonas.lock_writer_sonas(access)
        leaving = _require_sona(access, from_id).sona_id
        into = recall_sonas.resolve_merged_sona_id(access, into_id)
        if into is None:
            raise Invalid("into: none of your sonas has this id", field="into")
        if leaving != into:
            store_sonas.lock_against_new_memories(access, [leaving, into])
            store_memories.delete_shared_memories_before_merge(access, leaving, into)
            store_sonas.mark_sona_merged_into(access, leaving, into)
        return SonaOut(**_to_sona_fields(_require_sona(access, into)))


def record_sona_memories(
    access: TenantDb, sona_id: UUID, event_ids: Sequence[UUID], space: str
) -> RecordedSonaMemories:
    """Record that a sona was active in these events. Raises NotFound, and Invalid if one of the
    events is not visible; then none is recorded."""
    ids = sorted(set(event_ids))
    with access.transaction():
        sona = _require_sona(access, sona_id)
        if len(store_memories.list_visible_events(access, ids)) < len(ids):
            raise Invalid(
                "event_ids: one of these ids is not the id of an event in view", field="event_ids"
            )
        new_ids = store_memories.insert_sona_memories(access, sona.sona_id, ids, space)
    return RecordedSonaMemories(
        uuid=sona.sona_id, added=len(new_ids), known=len(ids) - len(new_ids)
    )


def _require_sona(access: TenantDb, sona_id: UUID) -> Sona:
    sona = store_sonas.find_sona_or_merge_target(access, sona_id)
    if sona is None:
        raise NotFound
    return sona


def _to_sona_fields(sona: Sona) -> dict[str, Any]:
    return {"uuid": sona.sona_id, "names": sona.names, "created_at": sona.created_at}
