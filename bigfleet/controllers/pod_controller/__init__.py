"""Writes one CapacityRequest for each Pod; optional, and the only part that watches Pods."""

from bigfleet.controllers.pod_controller.role import Settings, run

__all__ = ["Settings", "run"]
