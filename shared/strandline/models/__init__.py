"""Embedding models behind one interface."""
