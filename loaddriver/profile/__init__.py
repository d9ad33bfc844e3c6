"""Profiles: reading, validating, overriding them."""
