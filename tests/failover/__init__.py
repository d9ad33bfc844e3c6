"""How long the coordinator has no leader when replicas are killed."""
