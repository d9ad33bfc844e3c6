"""How many machines, processes and cores a profile needs, and whether they are there."""
