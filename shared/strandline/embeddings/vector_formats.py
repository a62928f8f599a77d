"""How vectors go to Postgres and come from it, in half precision."""

from collections.abc import Sequence

from pgvector import HalfVector


def vector_to_text(vector: Sequence[float]) -> str:
    """A vector in the text format of `halfvec`. Five digits tell all values of half precision
    apart, and are half as many bytes as pgvector's own text."""
    values = HalfVector(list(vector)).to_list()
    # One format of all values takes a third of the time of one each.
    return "[" + ("%.5g," * len(values) % tuple(values))[:-1] + "]"


def unpack_vector(data: bytes) -> list[float]:
    """Decode the format of `halfvec_send`, which Postgres writes and this reads in a tenth of the
    time of the text format."""
    return HalfVector.from_binary(data).to_list()


def pack_vector(vector: Sequence[float]) -> bytes:
    """Encode a vector in the format of `halfvec_send`."""
    return HalfVector(list(vector)).to_binary()
