"""The command line of bigfleet."""
