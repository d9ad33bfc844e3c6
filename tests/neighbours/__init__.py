"""Misbehaving operators, and their effect on other clusters."""
