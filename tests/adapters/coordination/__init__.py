"""Coordination stores."""
