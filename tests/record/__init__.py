"""What a run records, and what recording costs."""
