"""The background jobs, as data. Imports nothing of the package: every function reads it."""

from datetime import timedelta

GARBAGE_PERIOD = timedelta(hours=6)
"""A tenant's payloads are scanned at most once in each such period, counted since 1970: each scan
costs calls to the object store."""
