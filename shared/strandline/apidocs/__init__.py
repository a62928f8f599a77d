"""The API document and its page."""
