"""The heuristic model: the tasks of a language model by rules alone."""
