"""Vectors on their way to Postgres and back."""

import json
import struct

import pytest

from strandline.embeddings.vector_formats import pack_vector, unpack_vector, vector_to_text
from tests.support import ScratchDatabase


def _list_all_finite_values() -> list[float]:
    values = struct.unpack("<65536e", struct.pack("<65536H", *range(65536)))
    return [value for value in values if abs(value) <= 65504]


def test_vector_text_tells_all_half_precision_values_apart() -> None:
    values = _list_all_finite_values()
    read = json.loads(vector_to_text(values))
    form = f"<{len(values)}e"
    assert list(struct.unpack(form, struct.pack(form, *read))) == values


def test_vector_bytes_round_trip_and_round_to_half_precision() -> None:
    assert unpack_vector(pack_vector([0.25, -1.0, 1.00001])) == [0.25, -1.0, 1.0]


@pytest.mark.integration
def test_vector_formats_are_those_of_postgres(scratch_db: ScratchDatabase) -> None:
    text = vector_to_text([0.1, -3e-5, 7.0])
    ((data, is_equal),) = scratch_db.rows(
        "select halfvec_send(%s::halfvec), %s::halfvec = %s::halfvec",
        *(text, text, "[0.1,-3e-5,7.0]"),
    )
    assert (data, is_equal) == (pack_vector([0.1, -3e-5, 7.0]), True)
