"""Ids that are derived from the content that they identify, so that a replay gives the same ids."""

from uuid import UUID


def to_uuid8(digest: bytes) -> UUID:
    """A UUIDv8 (RFC 9562) of a hash's first 16 bytes."""
    number = int.from_bytes(digest[:16], "big") & ~(0xF << 76) & ~(0x3 << 62)
    return UUID(int=number | (8 << 76) | (2 << 62))
