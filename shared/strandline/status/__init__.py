"""Health and metrics of the service."""
