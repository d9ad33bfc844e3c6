"""Validation of snapshots, and invariants of decisions."""
