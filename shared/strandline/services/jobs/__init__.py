"""Background jobs: what they do, and the frame in which a state machine runs them."""
