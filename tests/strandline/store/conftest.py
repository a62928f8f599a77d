"""Fixtures of the isolation tests."""

from tests.strandline.store.world import copy, world

__all__ = ["copy", "world"]
