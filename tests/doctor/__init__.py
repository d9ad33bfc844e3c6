"""Tests of what a machine can measure."""
