"""Background jobs: the runner, the tables of jobs and leases, and the admin's verbs."""
