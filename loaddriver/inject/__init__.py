"""Faults of a known size in what a run measures: programs that stand in for a component."""
