"""Embedding models and the spaces of their vectors."""
