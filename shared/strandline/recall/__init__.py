"""Recall: search events by words and by meaning."""
