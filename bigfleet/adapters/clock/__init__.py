"""Clocks: the system's, and one that a test moves by hand."""
