"""Blocks by their CIDs: events' blocks and payloads, along a path of links and below it.

A block is read on behalf of the caller, as its event is. An edge leads only to what every reader of
its event may see, so a visible block's links lead to visible blocks, but for erased ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import cast
from uuid import UUID

import libipld

from strandline.aws.blobs import BlobStore
from strandline.db.database import TenantDb
from strandline.errors import (
    Gone,
    Malformed,
    NotFound,
    PayloadMissing,
    TooLarge,
    Unavailable,
    Unsupported,
)
from strandline.log import block_response_formats, store, store_links_and_sources
from strandline.log.cid import Edge, cid_to_bytes, compute_block_cid, encode_block, is_payload_cid
from strandline.log.store import Event, Payload

MAX_BYTES = 4 * 1024 * 1024
"""The most bytes of an answer: Lambda carries 6 MB, in base64."""
MAX_SEGMENTS = 64
"""The most segments of a path; each link on it takes a query."""
_MAX_EVENTS = 20_000
"""The most events whose blocks may be read for one answer."""
PROBE_CID = "bafkqaaa"
"""The empty block as an identity CID, by which clients find out what a gateway can do."""
_PROBE_BYTES = bytes([1, 0x55, 0, 0])


@dataclass(frozen=True)
class IpldBlock:
    """A block, with its decoded value and its event."""

    cid: str
    data: bytes
    node: object = None
    """The decoded value, in which links are bytes; None for a payload, which is bytes alone."""
    event_id: UUID | None = None
    """The event whose block it is."""

    @property
    def binary_cid(self) -> bytes:
        """The CID in binary form."""
        return _PROBE_BYTES if self.cid == PROBE_CID else cid_to_bytes(self.cid)

    @property
    def linked_cids(self) -> list[str]:
        """The CIDs that it links to, in the order in which they stand in it."""
        return [libipld.encode_cid(link) for link in _iterate_binary_links(self.node)]


def _iterate_binary_links(node: object) -> Iterator[bytes]:
    if isinstance(node, bytes):
        yield node
    for value in _get_members_by_segment(node).values():
        yield from _iterate_binary_links(value)


def _get_members_by_segment(node: object) -> Mapping[str, object]:
    """The values within a value, by the segment of a path that leads to each."""
    if isinstance(node, dict):
        return cast("dict[str, object]", node)
    items = cast("list[object]", node) if isinstance(node, list) else []
    return {str(place): item for place, item in enumerate(items)}


class BlockLookup:
    """Reads blocks for one request. `deadline` is in time.monotonic() seconds."""

    def __init__(self, access: TenantDb, blobs: BlobStore, deadline: float) -> None:
        self._access, self._blobs, self._deadline = access, blobs, deadline

    def find_event_or_payload(self, cid: str) -> Event | Payload | None:
        """What is visible under a CID: an event, or a payload of any size; None for the probe's.
        Raises NotFound, or Invalid for what is no CID."""
        if cid == PROBE_CID:
            return None
        if is_payload_cid(cid):
            record = store.find_payload(self._access, cid)
        else:
            record = store.find_earliest_by_cid(self._access, cid)
        if record is None:
            raise NotFound
        return record

    def load_block(self, record: Event | Payload | None) -> IpldBlock:
        """The block of what `find_event_or_payload` found. Raises NotFound for a payload that is no
        longer stored, TooLarge for one over MAX_BYTES."""
        if record is None:
            return IpldBlock(PROBE_CID, b"")
        if isinstance(record, Payload):
            return self._load_payload_block(record.cid, record.size)
        return _event_to_block(record)

    def list_blocks_along_path(self, cid: str, segments: Sequence[str]) -> list[IpldBlock]:
        """The blocks along a path: that of `cid`, and those of the links that `segments` lead
        through. Raises NotFound where the path leads nowhere, Gone where it leads to an erased
        event, Unsupported where it ends within a block, and what `find_event_or_payload` and
        `load_block` raise."""
        if len(segments) > MAX_SEGMENTS:
            raise Malformed(f"path: at most {MAX_SEGMENTS} segments", field="path")
        path = [self.load_block(self.find_event_or_payload(cid))]
        node = path[-1].node
        for number, segment in enumerate(segments, 1):
            node = _get_member_at_segment(node, segment, number)
            if isinstance(node, bytes):
                path.append(self._load_linked_block(path[-1], libipld.encode_cid(node)))
                node = path[-1].node
        if node is not path[-1].node:
            raise Unsupported(
                "path: it ends within a block, at a value that is no link. Ask for the block, and "
                "read the value there.",
                field="path",
            )
        return path

    def _load_linked_block(self, block: IpldBlock, link: str) -> IpldBlock:
        try:
            return self.load_block(self.find_event_or_payload(link))
        except NotFound:
            if block.event_id and store_links_and_sources.is_link_target_erased(
                self._access, block.event_id, link
            ):
                raise Gone("path: it leads to an event that was erased.", field="path") from None
            raise

    def list_linked_blocks(self, top: IpldBlock, has_duplicates: bool) -> Iterator[IpldBlock]:
        """All blocks that a block links to, directly or not, depth first. What was erased is left
        out. Raises TooLarge, or Unavailable where the store is too slow."""
        blocks, sizes = self._read_reachable_blocks(top)
        cids = {top.cid}
        stack = top.linked_cids[::-1]
        while stack:
            cid = stack.pop()
            if cid in cids and not has_duplicates:
                continue
            cids.add(cid)
            if cid not in blocks and cid in sizes:
                self._add_payload_block(blocks, cid, sizes[cid])
            block = blocks.get(cid)
            if block is not None:
                yield block
                stack += block.linked_cids[::-1]

    def _read_reachable_blocks(
        self, top: IpldBlock
    ) -> tuple[dict[str, IpldBlock], Mapping[str, int]]:
        """The blocks of all events below one, and the sizes of their payloads, both by CID."""
        if top.event_id is None:
            return {}, {}
        events = store_links_and_sources.list_event_and_reachable(
            self._access, top.event_id, _MAX_EVENTS, MAX_BYTES
        )
        if not events:
            raise make_blocks_too_large_error()
        blocks = [_event_to_block(event) for event in events]
        sizes = {event.blob_cid: event.blob_size or 0 for event in events if event.blob_cid}
        return {block.cid: block for block in blocks}, sizes

    def _add_payload_block(self, blocks: dict[str, IpldBlock], cid: str, size: int) -> None:
        with suppress(NotFound):  # its event is being erased: left out, as the event will be
            blocks[cid] = self._load_payload_block(cid, size)

    def _load_payload_block(self, cid: str, size: int) -> IpldBlock:
        if size > MAX_BYTES:
            raise make_blocks_too_large_error()
        if monotonic() > self._deadline:
            raise Unavailable("The payload store is too slow. Ask for fewer blocks, or try again.")
        try:
            return IpldBlock(cid, self._blobs.read(self._access.caller.tenant, cid))
        except PayloadMissing:
            raise NotFound from None


def make_blocks_too_large_error() -> TooLarge:
    """The error for an answer over MAX_BYTES."""
    return TooLarge(
        f"The blocks are more than {MAX_BYTES} bytes, or more than {_MAX_EVENTS} events. Ask for "
        "fewer with dag-scope=block, for single blocks with format=raw, or for a payload's "
        "address with GET /file/{cid}.",
        limit=MAX_BYTES,
    )


def _event_to_block(event: Event) -> IpldBlock:
    data = encode_block(event, [Edge(edge["cid"], edge["weight"]) for edge in event.edges])
    cid = compute_block_cid(data)
    assert cid == event.cid, "a block is derived from its row"
    return IpldBlock(cid, data, libipld.decode_dag_cbor(data), event.event_id)


def _get_member_at_segment(node: object, segment: str, number: int) -> object:
    """The value under one segment of a path. Raises NotFound, which names the segment's number."""
    members = _get_members_by_segment(node)
    if segment in members:
        return members[segment]
    raise NotFound(
        f"path: its segment {number} is not in the block that the segments before it lead to.",
        field="path",
        segment=number,
    )


def encode_car_file(
    path: Sequence[IpldBlock], below: Iterator[IpldBlock], has_duplicates: bool
) -> bytes:
    """A CAR file of the blocks along a path and of those below its end, which is the root. Raises
    TooLarge."""
    parts = [block_response_formats.encode_car_header(path[-1].binary_cid)]
    size, cids = len(parts[0]), set[str]()
    for block in _iterate_path_then_below(path, below):
        if block.cid == PROBE_CID or (block.cid in cids and not has_duplicates):
            continue  # the bytes of an identity CID are in the CID
        cids.add(block.cid)
        parts.append(block_response_formats.encode_car_section(block.binary_cid, block.data))
        size += len(parts[-1])
        if size > MAX_BYTES:
            raise make_blocks_too_large_error()
    return b"".join(parts)


def _iterate_path_then_below(
    path: Sequence[IpldBlock], below: Iterator[IpldBlock]
) -> Iterator[IpldBlock]:
    yield from path
    yield from below
