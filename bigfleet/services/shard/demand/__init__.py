"""Demand of all clusters: the needs table, roll-up handling, node limits."""
