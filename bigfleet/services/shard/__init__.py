"""The shard: holds its machines and its clusters' needs, and brings the two together."""

from bigfleet.services.shard.role import run
from bigfleet.services.shard.settings import Settings

__all__ = ["Settings", "run"]
