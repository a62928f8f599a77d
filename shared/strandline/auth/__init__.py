"""Credentials and the principals they stand for."""
