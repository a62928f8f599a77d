"""What Strandline does: one verb per module."""
