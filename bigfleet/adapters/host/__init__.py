"""Stand-ins for hardware: kwok Nodes in real clusters, or nothing."""
