"""Which form of a block a request asks for, by `format=` or the header `Accept`; and CAR files.

The media types and their parameters are those of the trustless gateway specification
(https://specs.ipfs.tech/http-gateways/trustless-gateway/). A CAR file, version 1, is a header that
names the roots, then blocks, each behind its CID (https://ipld.io/specs/transport/car/carv1/). This
service writes them; only clients read them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import libipld

from strandline.errors import Malformed
from strandline.log.schemas_read import BlockQuery

RAW_TYPE = "application/vnd.ipld.raw"
_CAR_TYPE = "application/vnd.ipld.car"
CAR_TYPES = tuple(f"{_CAR_TYPE}; version=1; order=dfs; dups={dups}" for dups in ("n", "y"))
"""The content types of CAR files: without and with duplicates."""
_ANY = ("*/*", "application/*")
_PARAMETERS = {"version": ("1",), "order": ("dfs", "unk"), "dups": ("y", "n")}
"""The values that a parameter of the CAR type may have in a request."""


@dataclass(frozen=True)
class BlockResponseFormat:
    """The form of an answer."""

    kind: Literal["raw", "car"]
    has_duplicates: bool = False

    @property
    def content_type(self) -> str:
        """The value of Content-Type."""
        return RAW_TYPE if self.kind == "raw" else CAR_TYPES[self.has_duplicates]


def choose_block_format(
    query: BlockQuery, accept: str | None, *, has_path: bool
) -> BlockResponseFormat:
    """The form that a request asks for. `format=` comes before `Accept`, a parameter of the query
    before one of the media type. Without either it is the block, and along a path a CAR file
    (the specification has a 400 for the first, but earlier programs rely on it).
    Raises Malformed for one that cannot be given."""
    default: Literal["raw", "car"] = "car" if has_path else "raw"
    accepted = _choose_accepted_format(accept or "*/*", default)
    kind = query.format or (accepted and accepted.kind)
    if kind is None:
        raise Malformed(
            f"Accept: only {RAW_TYPE} and {_CAR_TYPE} (version 1, order dfs, dups y or n) can be "
            "given. Send one of them, or format=raw or format=car.",
            field="Accept",
        )
    if kind == "raw":
        if has_path:
            raise Malformed(
                "format: a path leads through blocks, which only a CAR file can hold: send "
                "format=car, or ask for the block's own CID.",
                field="format",
            )
        return BlockResponseFormat("raw")
    duplicates = query.car_dups == "y"
    if query.car_dups is None:
        duplicates = accepted is not None and accepted.has_duplicates
    return BlockResponseFormat("car", duplicates)


def _choose_accepted_format(
    accept: str, default: Literal["raw", "car"]
) -> BlockResponseFormat | None:
    """The first of the most preferred media types that can be given, or None."""
    for media, parameters in _rank_accepted_types(accept):
        if media in _ANY:
            return BlockResponseFormat(default)
        if media == RAW_TYPE:
            return BlockResponseFormat("raw")
        has_known_values = all(
            value in _PARAMETERS[name] for name, value in parameters.items() if name in _PARAMETERS
        )
        if media == _CAR_TYPE and has_known_values:
            return BlockResponseFormat("car", parameters.get("dups") == "y")
    return None


def _rank_accepted_types(accept: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Media types with their parameters, the most preferred first; those with q=0 are left out."""
    entries: list[tuple[float, str, Mapping[str, str]]] = []
    for entry in accept.lower().split(","):
        media, *pairs = (part.strip() for part in entry.split(";"))
        parameters = {
            name.strip(): value.strip().strip('"')
            for name, _, value in (pair.partition("=") for pair in pairs)
        }
        entries.append((_parse_quality_weight(parameters.get("q", "1")), media, parameters))
    entries.sort(key=lambda entry: -entry[0])
    return ((media, parameters) for weight, media, parameters in entries if weight > 0)


def _parse_quality_weight(text: str) -> float:
    """The preference of a media type; 0 for text that is no number."""
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


VERSION = 1


def encode_car_header(root: bytes) -> bytes:
    """The beginning of a file with one root, which is a CID in binary form."""
    header = libipld.encode_dag_cbor({"roots": [root], "version": VERSION})
    return _encode_varint(len(header)) + header


def encode_car_section(cid: bytes, data: bytes) -> bytes:
    """One block with its CID in binary form."""
    return _encode_varint(len(cid) + len(data)) + cid + data


def _encode_varint(number: int) -> bytes:
    """An unsigned LEB128."""
    varint = bytearray()
    while number > 0x7F:
        varint.append(number & 0x7F | 0x80)
        number >>= 7
    varint.append(number)
    return bytes(varint)
