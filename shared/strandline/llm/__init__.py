"""Language models: tasks, providers, budgets, prompts, and the heuristic model."""
