"""Erasure: delete events and everything derived from them, and issue a signed receipt."""
