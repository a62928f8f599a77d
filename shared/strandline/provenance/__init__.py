"""Provenance: what a derived row rests on, down to the events, and what rests on an event."""
