"""The provider that comes with BigFleet: machines in SQLite, hosts faked by kwok."""

from bigfleet.services.provider.config import Latencies, Latency, ProviderConfig
from bigfleet.services.provider.role import run

__all__ = ["Latencies", "Latency", "ProviderConfig", "run"]
