"""Nodes and edges: their identity, their observations, and the SQL that stores and reads them."""
