"""Plays the plan against API servers, in a process of its own."""
