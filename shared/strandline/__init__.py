"""Strandline: a memory service for AI agents. Importing the package imports nothing else."""
