"""How vectors go to Postgres and come from it, in half precision."""

from collections.abc import Sequence

from pgvector import HalfVector

from strandline.db.packed_vectors import PackedVector


def pack_vector(vector: Sequence[float]) -> PackedVector:
    """Encode a vector for Postgres."""
    return PackedVector(HalfVector(list(vector)).to_binary())


def unpack_vector(data: bytes) -> list[float]:
    """Decode the format of `halfvec_send`, which Postgres writes and this reads in a tenth of the
    time of the text format."""
    return HalfVector.from_binary(data).to_list()
