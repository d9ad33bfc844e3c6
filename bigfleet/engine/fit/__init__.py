"""How pods fit machines: node affinity, capacity, cost, equivalence classes of pods."""
