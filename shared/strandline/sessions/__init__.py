"""Sessions: conversations, their context and chains."""
