"""Credentials, and the principals that they authenticate."""
