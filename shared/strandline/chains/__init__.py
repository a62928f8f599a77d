"""Topic chains: the fold of the log, its versions and their heat."""
