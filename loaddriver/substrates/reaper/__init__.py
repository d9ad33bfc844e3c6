"""A process that outlives the runner just long enough to clean up after it."""
