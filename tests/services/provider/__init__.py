"""The built-in provider."""
