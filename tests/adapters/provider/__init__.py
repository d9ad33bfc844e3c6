"""Calls to providers."""
