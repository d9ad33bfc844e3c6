"""The processes of a fleet on the virtual clock: shard, coordinators, provider."""
