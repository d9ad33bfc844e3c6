"""State of a decision in progress: packings, budgets, reservations."""
