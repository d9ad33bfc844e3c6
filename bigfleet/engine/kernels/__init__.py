"""The inner loops, compiled by numba: packing, selection, topology."""
