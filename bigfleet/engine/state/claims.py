"""Which need claims each machine."""

from __future__ import annotations

from collections.abc import Container, Iterable

import numpy as np

from bigfleet.engine.snapshot import NONE, Flags, Ints
from bigfleet.engine.state.cycle_state import CycleState


def claims(state: CycleState) -> Ints:
    """For each machine [n] the need that claims it: the one that ordered it in this decision, or
    else the first with pods on it; NONE if there is none. A machine on its way stays with the need
    that it comes for.
    """
    return _claims(state, state.packings, state.needs.additional)


def served(state: CycleState, clusters: Iterable[int] | None = None) -> Ints:
    """Like `claims`, but an additional need has no precedence: of all needs with pods on a machine,
    the first one has the highest priority. Only for the machines of `clusters`, if given.
    """
    chosen = state.packings if clusters is None else clusters
    return _claims(state, chosen, np.zeros_like(state.needs.additional))


def _claims(state: CycleState, clusters: Iterable[int], preferred: Flags) -> Ints:
    claimed = np.full(len(state.fleet), NONE, np.int32)
    chosen = {*clusters}
    state.packings.claim([*chosen], claimed, preferred)
    _keep_incoming(state, chosen, claimed)
    np.copyto(claimed, state.ordered_by, where=state.ordered_by != NONE)
    return claimed


def _keep_incoming(state: CycleState, clusters: Container[int], claimed: Ints) -> None:
    """Let the needs that machines are on their way to claim them if they have pods there, too, and
    the claimant's priority is no higher.
    """
    # Else it would arrive for another need, and an equal could take it: the need that had it
    # drained would have another machine drained for the same pods.
    fleet, priorities = state.fleet, state.priorities
    for cluster in state.clusters_of_incoming:
        if cluster not in clusters:
            continue
        packing = state.packings[cluster]
        machine, pod_class, _ = packing.placements.present()
        rows, need = packing.rows[machine], state.classes.need[pod_class]
        its = np.flatnonzero(state.incoming[rows] & (fleet.last_claimed_by[rows] == need))
        its = its[priorities[claimed[rows[its]]] == priorities[need[its]]]
        claimed[rows[its]] = need[its]
