"""Plans: every request of a load and its due time, from profile and seed. Pure."""
