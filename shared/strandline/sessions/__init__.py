"""Sessions: conversations, their context and their chains."""
