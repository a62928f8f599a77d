"""CAR files, version 1: a header that names the roots, then blocks, each behind its CID.

See https://ipld.io/specs/transport/car/carv1/. This service writes them; only clients read them.
"""

import libipld

VERSION = 1


def encode_header(root: bytes) -> bytes:
    """The beginning of a file with one root, which is a CID in binary form."""
    header = libipld.encode_dag_cbor({"roots": [root], "version": VERSION})
    return _encode_varint(len(header)) + header


def encode_section(cid: bytes, data: bytes) -> bytes:
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
