"""The roles and commands of `bigfleet`; each module adds its own parsers."""
