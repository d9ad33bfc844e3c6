"""How the plan is played."""
