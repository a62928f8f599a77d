"""Which request is served by what; the statuses and headers of each answer."""
