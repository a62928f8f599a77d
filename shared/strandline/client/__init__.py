"""The Python client: verbs of the service, synchronous and asynchronous."""
