"""Vectors on their way to Postgres and back."""

import struct
from contextlib import closing
from dataclasses import dataclass

import pytest

from strandline.db.database import Caller, Database
from strandline.db.packed_vectors import PackedVectors
from strandline.embeddings.vector_formats import pack_vector, unpack_vector
from tests.support import ScratchDatabase


@dataclass(frozen=True)
class VectorRow:
    data: bytes
    is_equal: bool
    many: list[str | None]
    none: list[str | None]


def _list_all_finite_values() -> list[float]:
    values = struct.unpack("<65536e", struct.pack("<65536H", *range(65536)))
    return [value for value in values if abs(value) <= 65504]


def test_vector_bytes_keep_all_half_precision_values() -> None:
    values = _list_all_finite_values()
    assert unpack_vector(pack_vector(values)) == values


def test_vector_bytes_round_trip_and_round_to_half_precision() -> None:
    assert unpack_vector(pack_vector([0.25, -1.0, 1.00001])) == [0.25, -1.0, 1.0]


@pytest.mark.integration
def test_vector_formats_are_those_of_postgres(scratch_db: ScratchDatabase) -> None:
    """As a parameter, in a list with and without others, and on the way back."""
    vector = pack_vector([0.1, -3e-5, 7.0])
    with closing(Database(scratch_db.url)) as database:
        (row,) = database.connect_as(Caller("acme", ())).fetch(
            VectorRow,
            "select halfvec_send(%(one)s) as data,"
            " %(one)s = '[0.1,-3e-5,7.0]'::halfvec as is_equal,"
            " %(many)s::halfvec[] as many, %(none)s::halfvec[] as none",
            {
                "one": vector,
                "many": PackedVectors([None, vector, vector]),
                "none": PackedVectors([None]),
            },
        )
    text = "[0.099975586,-2.9981136e-05,7]"
    assert (row.data, row.is_equal) == (vector, True)
    assert (row.many, row.none) == ([None, text, text], [None])
