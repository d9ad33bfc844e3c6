"""Comparisons of two systems under test."""
