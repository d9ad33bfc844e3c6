"""Adapters, each against what it adapts."""
