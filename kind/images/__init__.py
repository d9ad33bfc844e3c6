"""Images of BigFleet, its harness, and what they run beside in a cluster."""
