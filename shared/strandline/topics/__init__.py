"""The topic index: trees of topics in published snapshots, and the questions they answer."""
