"""The background jobs, as data. Imports nothing of the package: every function reads it."""

from datetime import timedelta

GARBAGE_PERIOD = timedelta(hours=6)
"""A tenant's payloads are looked through once in such a period at most, counted since 1970: each
scan is a call to the store."""
