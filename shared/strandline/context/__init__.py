"""Context: stored memory for a prompt, as one block of text."""
