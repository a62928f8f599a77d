"""Recall by words and by meaning."""
