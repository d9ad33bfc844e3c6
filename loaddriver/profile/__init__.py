"""Profiles: their records, checks and loading."""
