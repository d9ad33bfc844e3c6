"""The shard: matches its machines with the needs of its clusters."""

from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.role import run

__all__ = ["ShardConfig", "run"]
