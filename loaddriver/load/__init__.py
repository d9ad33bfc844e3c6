"""Plays a plan against API servers, in its own process."""
