"""Erasure: forget events, all that was made of them, and prove it."""
