"""The member clusters: registry, connections, and the state of each."""
