"""A fleet on a virtual clock, and the explorer of its worlds."""
