"""The pod controller: creates a CapacityRequest for each Pod. Optional; only it watches Pods."""

from bigfleet.controllers.pod_controller.role import PodControllerConfig, run

__all__ = ["PodControllerConfig", "run"]
