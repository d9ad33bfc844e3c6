"""Roll-ups and the demand they make."""
