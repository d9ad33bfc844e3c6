"""Clients of the coordinator."""
