"""Orders carried out at the provider: fenced, retried, evictions on disk."""
