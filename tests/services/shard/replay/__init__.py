"""Replays of saved states."""
