"""Coordinators: leadership, domains, orders, operations."""
