"""What this machine can measure: its resources, its clock and its noise, before a run."""
