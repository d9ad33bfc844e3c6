"""The virtual clock and injected faults."""
