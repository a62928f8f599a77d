"""Language models: tasks, clients, budgets, prompts."""
