"""How a shard carries out orders."""
