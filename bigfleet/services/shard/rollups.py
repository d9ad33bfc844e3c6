"""Roll-ups as they arrive: checked, counted, and told to the journal."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bigfleet.api.v1alpha1 import capacity_pb2 as wire
from bigfleet.model.errors import InvalidInput
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.services.shard.journal import Journal
from bigfleet.services.shard.needs import NeedsTable

_log = logging.getLogger(__name__)


class RollUps:
    """Puts roll-ups into the needs table; `accepted` is called after each that changed it."""

    def __init__(
        self, needs: NeedsTable, journal: Journal, clock: Clock, accepted: Callable[[], None]
    ) -> None:
        self._needs = needs
        self._journal = journal
        self._clock = clock
        self._accepted = accepted

    def take(self, cluster: str, rollup: wire.ClusterCapacityNeeds) -> str:
        """Take a roll-up that came on `cluster`'s session; returns "" or why it is not in force."""
        try:
            if rollup.cluster_id != cluster:
                raise InvalidInput(
                    "roll-up: cluster_id", rollup.cluster_id, f"came on the session of {cluster}"
                )
            held = self._needs.replace(rollup, self._clock.unix_seconds())
        except InvalidInput as error:
            self._tell("rejected", cluster, rollup, str(error))
            return str(error)
        self._tell("held" if held else "accepted", cluster, rollup, held)
        if not held:
            self._accepted()
        return held

    def _tell(
        self, outcome: str, cluster: str, rollup: wire.ClusterCapacityNeeds, why: str
    ) -> None:
        metrics.shard_rollups.labels(outcome).inc()
        if why:
            _log.warning("roll-up not taken", extra={"cluster": cluster, "why": why})
        self._journal.note(
            f"rollup-{outcome}",
            cluster=cluster,
            needs=len(rollup.needs),
            sequence=rollup.timestamp_unix_nanos,
            note=why,
        )
