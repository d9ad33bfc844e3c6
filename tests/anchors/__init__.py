"""Gangs that are bound by an anchor."""
