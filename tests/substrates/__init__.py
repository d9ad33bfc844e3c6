"""Where clusters run: local processes, kind."""
