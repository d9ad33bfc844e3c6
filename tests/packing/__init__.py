"""Compares the machines of a run with bounds on packing."""
