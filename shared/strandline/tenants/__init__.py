"""Tenants and their quotas."""
