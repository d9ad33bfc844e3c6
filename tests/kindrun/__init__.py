"""Runs in a kind cluster."""
