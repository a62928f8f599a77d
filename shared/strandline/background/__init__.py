"""Background work and its handlers."""
