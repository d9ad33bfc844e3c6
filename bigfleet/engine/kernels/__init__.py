"""Inner loops of a decision, compiled by numba: packing, selection, topology."""
