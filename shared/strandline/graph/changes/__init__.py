"""Create, relate, update, invalidate and merge nodes: each change is a statement in the log."""
