"""Demand, fleet and cost of a profile, and the preflight checks."""
