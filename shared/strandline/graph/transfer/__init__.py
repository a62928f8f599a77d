"""Export of the graph into a file, and import of such a file."""
