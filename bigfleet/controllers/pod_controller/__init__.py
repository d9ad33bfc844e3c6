"""Writes one CapacityRequest for each Pod; optional, and the only part that watches Pods."""

from bigfleet.controllers.pod_controller.role import PodControllerConfig, run

__all__ = ["PodControllerConfig", "run"]
