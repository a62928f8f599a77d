"""Blocks that are fetched and read by IPLD libraries that are not ours."""

import base64
from typing import Any

import ipld_car
from multiformats import multihash

from tests.support import Gateway, Reply

CAR, RAW = "application/vnd.ipld.car", "application/vnd.ipld.raw"


def data_of(reply: Reply) -> bytes:
    """The bytes of an answer."""
    assert reply.status == 200, reply.text
    return base64.b64decode(reply.text)


def read_car(data: bytes) -> tuple[list[str], list[tuple[str, bytes]]]:
    """Roots and blocks of a CAR file; each block's bytes hash to its CID."""
    roots, blocks = ipld_car.decode(data)
    pairs = [(cid, bytes(block)) for cid, block in blocks]
    for cid, block in pairs:
        assert multihash.digest(block, "sha2-256") == cid.digest, cid
    return [root.encode("base32") for root in roots], [
        (cid.encode("base32"), block) for cid, block in pairs
    ]


def get(gateway: Gateway, key: str, path: str, accept: str = "*/*", **query: Any) -> Reply:
    parameters = {name.replace("_", "-"): value for name, value in query.items()}
    return gateway.call(
        "GET", f"/ipfs/{path}", key=key, query=parameters, headers={"Accept": accept}
    )
