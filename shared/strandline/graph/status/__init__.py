"""The size of the graph in view, and the progress of its background work."""
