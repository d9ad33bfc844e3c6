"""What a profile needs, and the preflight that says so."""
