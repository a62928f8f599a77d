"""Contradictions between facts, and advice before a text is stored."""
