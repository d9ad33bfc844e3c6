"""BigFleet: one autoscaler above a fleet of Kubernetes clusters."""
