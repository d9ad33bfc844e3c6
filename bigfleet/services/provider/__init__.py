"""The built-in provider: machines in SQLite, hosts simulated by kwok."""

from bigfleet.services.provider.config import Latencies, Latency, ProviderConfig
from bigfleet.services.provider.role import run

__all__ = ["Latencies", "Latency", "ProviderConfig", "run"]
