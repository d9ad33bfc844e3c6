"""Clocks: the system's, and a manual one for tests."""
