"""Fixtures of the isolation tests."""

from tests.strandline.db.world import copy, world, worlds

__all__ = ["copy", "world", "worlds"]
