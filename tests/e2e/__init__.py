"""Whole runs on real control planes, with their verdicts."""
