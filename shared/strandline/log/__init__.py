"""The event log: append and read events, store payloads, list scopes."""
