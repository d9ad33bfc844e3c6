"""What stands in for hardware: kwok Nodes in real clusters, or nothing at all."""
