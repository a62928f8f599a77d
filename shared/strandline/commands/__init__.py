"""The command line `strandline`: verbs of the client for people and for scripts."""
