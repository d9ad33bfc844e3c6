"""What a snapshot must be like, and what holds of every decision."""
