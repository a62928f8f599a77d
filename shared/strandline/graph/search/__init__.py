"""Search for nodes by meaning and words, and traversal along edges."""
