"""Faces of the client for agent frameworks, a module each. A module imports its framework, and no
other one: `pip install "strandline[langgraph]"` and the like bring what a module needs."""
