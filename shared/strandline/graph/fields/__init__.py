"""Fields of topics: their values, revisions and use."""
