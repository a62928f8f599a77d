"""Blocks and CIDs, checked by an implementation that is not ours: dag_cbor and multiformats."""

import hashlib
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import dag_cbor
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from multiformats import CID, multihash

from strandline.errors import Invalid
from strandline.log.cid import (
    Edge,
    EventColumns,
    ModelWrittenSpan,
    cid_to_bytes,
    compute_blob_cid,
    compute_block_cid,
    encode_block,
    payload_cid_of_sha256,
    sha256_of_payload_cid,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(EventColumns):
    """What a block is a view of; columns left out are empty."""

    def __init__(self, **columns: Any) -> None:
        empty: dict[str, Any] = dict.fromkeys(column.name for column in fields(EventColumns))
        common: dict[str, Any] = {"role": "user", "type": "message", "parts": ()}
        super().__init__(**empty | common | columns)


def other_cid(data: bytes, codec: str) -> CID:
    """The CID of some bytes, by multiformats."""
    return CID("base32", 1, codec, multihash.digest(data, "sha2-256"))


def decode(block: bytes) -> dict[str, Any]:
    return cast("dict[str, Any]", dag_cbor.decode(block))


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=60)
WORD = st.none() | TEXT.filter(bool)
LINKS = st.binary(max_size=4).map(lambda data: str(other_cid(data, "dag-cbor")))
EDGES = st.lists(
    st.builds(Edge, LINKS, st.floats(0, 1) | st.sampled_from([0.0, -0.0, 1])), max_size=6
)
MOMENTS = st.none() | st.datetimes(timezones=st.just(UTC))


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Any event that append lets in, and what it could let in later."""
    role = draw(st.sampled_from(["user", "agent", "system"]))
    kind = draw(
        st.sampled_from(["message", "thought", "action", "observation", "upload", "statement"])
    )
    is_blob = draw(st.booleans())
    parts: list[tuple[str, str | None]] = []
    if role == "agent" and kind != "observation" and not is_blob:
        parts = draw(st.lists(st.tuples(TEXT, WORD), max_size=4))
    line = "".join(text for text, _ in parts) if parts else draw(TEXT)
    return Row(
        role=role,
        type=kind,
        speaker=draw(WORD),
        content=None if is_blob else line,
        parts=[ModelWrittenSpan(len(text), model) for text, model in parts],
        stop_reason=draw(st.sampled_from([None, "endTurn", "stopSequence", "maxTokens"])),
        blob_cid=str(other_cid(draw(st.binary(max_size=8)), "raw")) if is_blob else None,
        file_name=draw(WORD),
        mime_type=draw(WORD),
        occurred_at=draw(MOMENTS),
    )


def union(row: Row) -> dict[str, object]:
    """The source's Memory union, as its own words define it."""
    if row.blob_cid:
        data: dict[str, object] = {"kind": "file", "content": CID.decode(row.blob_cid)}
        options = {"name": row.file_name, "mimeType": row.mime_type}
    elif row.type == "observation":
        return {"kind": "text", "content": row.content}
    elif row.role == "agent":
        runs: list[dict[str, str]] = []
        rest = row.content or ""
        for part in row.parts or [ModelWrittenSpan(len(rest), None)]:
            run = {"content": rest[: part.chars]}
            runs.append(run | ({"model": part.model} if part.model is not None else {}))
            rest = rest[part.chars :]
        data = {"kind": "self", "name": row.speaker or "agent", "parts": runs}
        options = {"stop_reason": row.stop_reason}
    else:
        data = {"kind": "other", "content": row.content}
        options = {"name": row.speaker}
    return data | {name: value for name, value in options.items() if value is not None}


@given(row=rows(), edges=EDGES)
@example(row=Row(role="agent", content="said without parts"), edges=[])
@example(row=Row(content="", occurred_at=EPOCH - timedelta(microseconds=1)), edges=[])
@example(row=Row(content="", occurred_at=datetime.max.replace(tzinfo=UTC)), edges=[])
def test_cid_block_reads_back_as_event(row: Row, edges: list[Edge]) -> None:
    memory = decode(encode_block(row, edges))
    assert memory["data"] == union(row)
    assert set(memory) == {"data", "edges"} | ({"timestamp"} if row.occurred_at else set())
    if row.occurred_at:
        assert memory["timestamp"] == (row.occurred_at - EPOCH) // timedelta(seconds=1)
        assert type(memory["timestamp"]) is int


@given(row=rows(), edges=EDGES)
def test_cid_and_block_match_other_implementation(row: Row, edges: list[Edge]) -> None:
    block = encode_block(row, edges)
    assert dag_cbor.encode(cast("Any", dag_cbor.decode(block))) == block
    assert compute_block_cid(block) == str(other_cid(block, "dag-cbor"))


@given(edges=EDGES, seed=st.randoms(use_true_random=False))
def test_cid_block_edges_are_sorted_links(edges: list[Edge], seed: Any) -> None:
    shuffled = list(edges)
    seed.shuffle(shuffled)
    block = encode_block(Row(content="x"), edges)
    assert encode_block(Row(content="x"), shuffled) == block
    links: list[dict[str, Any]] = decode(block)["edges"]
    assert all(set(link) == {"target", "weight"} for link in links)
    assert all(isinstance(link["target"], CID) and type(link["weight"]) is float for link in links)
    targets = [bytes(link["target"]) for link in links]
    assert targets == sorted(targets)
    results = sorted((link["target"].encode("base32"), link["weight"]) for link in links)
    assert results == sorted((edge.cid, float(edge.weight)) for edge in edges)


def test_cid_block_negative_zero_weight_is_zero() -> None:
    """The database gives it back as zero, and the block must still hash to its CID."""
    cid = str(other_cid(b"", "dag-cbor"))
    assert encode_block(Row(content="x"), [Edge(cid, -0.0)]) == encode_block(
        Row(content="x"), [Edge(cid, 0.0)]
    )


@given(data=st.binary(max_size=200))
def test_cid_of_blob_is_raw_hash(data: bytes) -> None:
    assert compute_blob_cid(data) == str(other_cid(data, "raw"))
    assert cid_to_bytes(compute_blob_cid(data)) == bytes(CID.decode(compute_blob_cid(data)))
    digest = hashlib.sha256(data).digest()
    assert payload_cid_of_sha256(digest) == compute_blob_cid(data)
    assert sha256_of_payload_cid(compute_blob_cid(data), "cid") == digest


def test_cid_of_event_block_is_refused_as_blob() -> None:
    for codec in ("dag-cbor", "dag-pb"):
        with pytest.raises(Invalid, match=r"^blob\.cid: ") as error:
            sha256_of_payload_cid(str(other_cid(b"x", codec)), "blob.cid")
        assert error.value.details["field"] == "blob.cid"


GOLDEN = [
    (
        Row(
            role="user",
            speaker="user:alice",
            content="Grüße, 海 🌊",
            occurred_at=datetime(2026, 5, 8, 13, 56, tzinfo=UTC),
        ),
        list[Edge](),
        (
            "a36464617461a3646b696e64656f74686572646e616d656a757365723a616c69636567636f6e74656e74"
            "714772c3bcc39f652c20e6b5b720f09f8c8a656564676573806974696d657374616d701a69fdeb70"
        ),
        "bafyreibzjixcls2tgr5lxk7vbjcd3hjm3lvdmmglghhwrafvol2w34bzi4",
    ),
    (
        Row(
            role="agent",
            type="thought",
            speaker="agent:helper",
            content="Tide is out.Go.",
            parts=[ModelWrittenSpan(12, "gpt-9"), ModelWrittenSpan(3, None)],
            stop_reason="endTurn",
            occurred_at=datetime(1969, 12, 31, 23, 59, 58, 500000, tzinfo=UTC),
        ),
        [
            Edge("bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swua", 0.25),
            Edge("bafyreihyrpefhacm6kkp4ql6j6udakdit7g3dmkzfriqfykhjw6cad5lrm", 1),
        ],
        (
            "a36464617461a4646b696e646473656c66646e616d656c6167656e743a68656c70657265706172747382"
            "a2656d6f64656c656770742d3967636f6e74656e746c54696465206973206f75742ea167636f6e74656e"
            "7463476f2e6b73746f705f726561736f6e67656e645475726e65656467657382a266746172676574d82a"
            "58250001711220c19a797fa1fd590cd2e5b42d1cf5f246e29b91684e2f87404b81dc345c7a56a0667765"
            "69676874fb3fd0000000000000a266746172676574d82a58250001711220f88bc853804cf294fe417e4f"
            "a83028689fcdb1b1592c5102e1474dbc200fab8b66776569676874fb3ff00000000000006974696d6573"
            "74616d7021"
        ),
        "bafyreicku6anipjprls5yd5uogaatpazjc754qui6dteosxyyk6tjvak44",
    ),
    (
        Row(
            role="agent",
            type="upload",
            blob_cid="bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e",
            file_name="tide.csv",
            mime_type="text/csv",
        ),
        list[Edge](),
        (
            "a26464617461a4646b696e646466696c65646e616d6568746964652e63737667636f6e74656e74d82a58"
            "250001551220b94d27b993ed3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9686d696d"
            "655479706568746578742f63737665656467657380"
        ),
        "bafyreidt4urywkq6uxok7pzasjk5xyduijodxyswbdzgnk2uqgz52io4li",
    ),
]


@pytest.mark.parametrize(("row", "edges", "block", "cid"), GOLDEN, ids=["other", "self", "file"])
def test_cid_blocks_are_frozen(row: Row, edges: list[Edge], block: str, cid: str) -> None:
    assert encode_block(row, edges).hex() == block
    assert (
        compute_block_cid(bytes.fromhex(block))
        == cid
        == str(other_cid(bytes.fromhex(block), "dag-cbor"))
    )


GOOD = CID.decode(GOLDEN[2][0].blob_cid or "")


@pytest.mark.parametrize(
    "cid",
    [
        "",
        "x",
        "garbage!",
        str(GOOD).upper(),
        str(GOOD)[:-1],
        str(GOOD) + "a",
        f" {GOOD}",
        GOOD.encode("base58btc"),
        str(GOOD.set(version=0, codec="dag-pb", base="base58btc")),
        str(CID("base32", 1, "raw", multihash.digest(b"x", "sha2-512"))),
        str(CID("base32", 1, "raw", multihash.digest(b"x", "sha1"))),
        "é" * 40,
    ],
)
def test_cid_other_spellings_are_refused_by_field(cid: str) -> None:
    with pytest.raises(Invalid) as error:
        cid_to_bytes(cid, "blob.cid")
    assert error.value.details["field"] == "blob.cid"


@given(
    cid=st.text(max_size=80)
    | st.text("abcdefghijklmnopqrstuvwxyz234567", max_size=60).map("b".__add__)
)
def test_cid_reader_survives_any_text(cid: str) -> None:
    try:
        raw = cid_to_bytes(cid)
    except Invalid:
        return
    assert bytes(CID.decode(cid)) == raw
    assert CID.decode(raw).encode("base32") == cid


@pytest.mark.parametrize("role", ["user", "agent", "system"])
def test_cid_of_statement_equals_message(role: str) -> None:
    blocks = {
        encode_block(Row(role=role, type=kind, speaker="who", content="Alice lives in Berlin."), [])
        for kind in ("message", "statement")
    }
    assert len(blocks) == 1
