"""Background jobs: runner, ledger, control."""
