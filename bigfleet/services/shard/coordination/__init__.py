"""The shard's side of the coordinator: told what to own, never asked what to decide."""
