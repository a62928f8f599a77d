"""The database: connections, pipelines, migrations."""
