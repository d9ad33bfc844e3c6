"""Explanations of shortfalls, and shortfall reports."""
