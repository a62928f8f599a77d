"""What operators do: tenants, keys, certificates, releases."""
