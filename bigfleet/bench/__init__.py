"""Benchmarks of decisions on synthetic fleets."""
