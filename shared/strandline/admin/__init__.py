"""Operators' tasks: tenants, keys, certificates, usage, releases."""
