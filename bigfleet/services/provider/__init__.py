"""The provider that comes with BigFleet: machines in SQLite, hosts faked by kwok."""

from bigfleet.services.provider.role import run
from bigfleet.services.provider.settings import Latencies, Latency, Settings

__all__ = ["Latencies", "Latency", "Settings", "run"]
