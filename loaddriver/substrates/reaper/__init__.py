"""The reaper: a process that cleans up after the runner has ended."""
