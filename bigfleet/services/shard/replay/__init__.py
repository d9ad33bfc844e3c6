"""Decisions on a saved state: what a shard would do if prices, zones or machines were others."""
