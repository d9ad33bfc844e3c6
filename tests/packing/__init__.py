"""Machines held against what a packing bound needs."""
