"""Which sona is meant: by its id, by one of its names, or by a name of nearly the same meaning."""

import hashlib
import unicodedata
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.errors import Invalid
from strandline.recall import store_sonas
from strandline.recall.recall import embed_query


def make_name_key(name: str) -> str:
    """What two spellings of one name have in common: case, width of letters and space do not count.
    A hash, because folding can make a name many times as long."""
    canonical = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return hashlib.sha256(" ".join(canonical.split()).encode()).hexdigest()


def find_sona(
    access: TenantDb, embedder: Embedder, sona: str, *, min_cosine: float, timeout: float
) -> UUID | None:
    """The caller's sona that an id or a name means: exactly, else the one whose name is nearest in
    meaning, if it is at least so near. None if there is none. `timeout` is in seconds; without an
    embedding in that time names count exactly."""
    try:
        return store_sonas.find_by_id(access, UUID(sona))
    except ValueError:
        pass
    sona_id = store_sonas.find_by_name(access, make_name_key(sona))
    if sona_id is not None:
        return sona_id
    vector, _ = embed_query(embedder, sona, timeout)
    if vector is None:
        return None
    return store_sonas.find_nearest_name(access, vector, embedder.space, min_cosine)


def require_sona(
    access: TenantDb, embedder: Embedder, sona: str, *, min_cosine: float, timeout: float
) -> UUID:
    """As `find_sona`. Raises Invalid where there is none."""
    sona_id = find_sona(access, embedder, sona, min_cosine=min_cosine, timeout=timeout)
    if sona_id is None:
        raise Invalid(
            "sona: none of yours has this id or a name like this; POST /api/v1/sonas makes one",
            field="sona",
        )
    return sona_id
