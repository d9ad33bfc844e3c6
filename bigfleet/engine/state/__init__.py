"""What a decision changes while it is made: packings, budgets, free machines."""
