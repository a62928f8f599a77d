"""Lists of nodes, the history of a node, and proposals of merges."""
