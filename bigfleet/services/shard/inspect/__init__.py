"""Answers to `bigfleet why` and its like: needs, machines, ceilings."""
