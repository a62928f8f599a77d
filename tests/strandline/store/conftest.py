"""Fixtures of the isolation tests."""

from tests.strandline.store.world import copy, world, worlds

__all__ = ["copy", "world", "worlds"]
