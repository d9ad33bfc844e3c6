"""The load process: Locust users that create, scale and delete objects and pods on schedule.

Run by Locust, not imported. The paths of its files are in environment variables, because Locust
owns the command line. Locust's own latency statistics are rounded and not used; the results file
has the exact times. Several workers have `master_locustfile.py` and
`worker_locustfile.py` instead.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from loaddriver.load.dispatch import DRAIN_TIMEOUT_SECONDS, Dispatcher, users_for
from loaddriver.load.files import (
    CLUSTERS_VARIABLE,
    CONTROL_VARIABLE,
    PLAN_VARIABLE,
    RESULTS_VARIABLE,
    Recorder,
    read_control,
    read_endpoints,
)
from loaddriver.load.shape import ConstantUsers
from loaddriver.load.tenant import Tenant
from loaddriver.plan.files import load_plan

_CONTROL = Path(os.environ[CONTROL_VARIABLE])
_RECORDER = Recorder(Path(os.environ[RESULTS_VARIABLE]))
_EVENTS = load_plan(Path(os.environ[PLAN_VARIABLE])).events
_DISPATCHER = Dispatcher(_EVENTS, time.time)
_USERS = users_for(_EVENTS)
Tenant.equip(
    read_endpoints(Path(os.environ[CLUSTERS_VARIABLE])), _DISPATCHER, _USERS, _RECORDER.record
)


class StepReleases(ConstantUsers):
    """Follows the control file; the number of users is constant."""

    def tick(self) -> tuple[int, float] | None:
        """Called by Locust every second; returning None ends the process with exit code 0."""
        control = read_control(_CONTROL)
        for released in _DISPATCHER.follow(control):
            _RECORDER.record(released)
        self.note_start(_USERS, _RECORDER)
        return None if control.stop and self._drained() else (_USERS, _USERS)

    def _drained(self) -> bool:
        """Whether all responses have arrived or timed out."""
        waited = self.seconds_stopping()
        return _DISPATCHER.idle or waited > DRAIN_TIMEOUT_SECONDS
