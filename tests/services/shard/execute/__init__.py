"""Execution of orders."""
