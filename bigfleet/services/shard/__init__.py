"""The shard: holds its machines and its clusters' needs, and brings the two together."""

from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.role import run

__all__ = ["ShardConfig", "run"]
