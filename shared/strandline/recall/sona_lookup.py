"""Find a sona by its id, by one of its names, or by a name of similar meaning."""

import hashlib
import unicodedata
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.errors import Invalid
from strandline.recall import store_sonas
from strandline.recall.query_vector import embed_query


def hash_normalized_name(name: str) -> str:
    """A key that is equal for spellings of a name that differ only in case, letter width and space.
    It is a hash, because folding can make a name many times as long."""
    canonical = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return hashlib.sha256(" ".join(canonical.split()).encode()).hexdigest()


def find_sona_by_id_or_name(
    access: TenantDb, embedder: Embedder, sona: str, *, min_cosine: float, timeout: float
) -> UUID | None:
    """Find the caller's sona by an id or a name: an exact match, else the sona whose name is
    closest in meaning, with a cosine of at least `min_cosine`. None if there is none. `timeout` is
    in seconds; without an embedding in that time, only exact matches are found."""
    try:
        return store_sonas.resolve_merged_sona_id(access, UUID(sona))
    except ValueError:
        pass
    sona_id = store_sonas.find_sona_by_name_key(access, hash_normalized_name(sona))
    if sona_id is not None:
        return sona_id
    vector, _ = embed_query(embedder, sona, timeout, "text")
    if vector is None:
        return None
    return store_sonas.find_sona_by_nearest_name(access, vector, embedder.space, min_cosine)


def require_sona_by_id_or_name(
    access: TenantDb, embedder: Embedder, sona: str, *, min_cosine: float, timeout: float
) -> UUID:
    """Like `find_sona_by_id_or_name`. Raises Invalid if there is none."""
    sona_id = find_sona_by_id_or_name(
        access, embedder, sona, min_cosine=min_cosine, timeout=timeout
    )
    if sona_id is None:
        raise Invalid(
            "sona: you have no sona with this id or a similar name; POST /api/v1/sonas creates one",
            field="sona",
        )
    return sona_id
