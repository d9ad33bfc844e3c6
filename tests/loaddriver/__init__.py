"""Profiles, plans and the load that is played."""
