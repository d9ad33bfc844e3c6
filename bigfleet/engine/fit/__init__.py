"""Which pods fit which machines: flavours, capacity, cost, equivalence classes of pods."""
