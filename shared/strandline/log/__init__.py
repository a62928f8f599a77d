"""The event log: append, read, payloads, scopes."""
