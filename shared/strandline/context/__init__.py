"""Context: what memory holds for a prompt, as one block of text."""
