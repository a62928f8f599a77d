"""Personas: sonas, their acts, and answers on their behalf."""
