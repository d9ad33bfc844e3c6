"""State that outlives a process."""
