"""Chains: topics folded from the event log, their versions and their heat."""
