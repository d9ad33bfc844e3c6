"""Ports made real: one folder per port, the real one beside the one for tests."""
