"""The virtual clock and the faults: loop, disk, injected errors."""
