"""Personas: sonas, their acts, and answers in their name."""
