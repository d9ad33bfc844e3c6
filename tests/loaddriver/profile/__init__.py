"""Profiles that are shipped, and errors in those that are not."""
