"""The database: connections, pipelines, and its schema."""
