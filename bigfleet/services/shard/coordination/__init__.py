"""The shard's side of the coordinator: reports, instructions, ownership changes."""
