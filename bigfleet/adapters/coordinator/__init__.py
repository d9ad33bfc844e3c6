"""How others reach the coordinator."""
