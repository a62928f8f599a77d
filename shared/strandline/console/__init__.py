"""The console: a page that shows what memory holds, and why an answer is as it is."""
