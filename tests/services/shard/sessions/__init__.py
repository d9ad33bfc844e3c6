"""Sessions with operators."""
