"""The kind substrate: each cluster a kind cluster, BigFleet's roles in pods."""
