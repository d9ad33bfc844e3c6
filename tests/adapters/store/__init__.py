"""Stored state."""
