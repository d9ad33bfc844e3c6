"""The kind substrate: kind clusters, with BigFleet's roles in pods."""
