"""Hooks of coding agents, Claude Code and Codex: `strandline hook`. What was said is read from the
agent's own transcript, waits on disk, and is stored by a process of its own, so that the agent
waits for nothing but an answer of memory. Unlike its neighbours this package needs no framework."""
