"""Every machine of this shard, in columns: what the provider says, and what each one is for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from bigfleet.engine.snapshot import NONE, Demand, Flavour, Fleet, Ints
from bigfleet.model import penalty
from bigfleet.model.machine import BOUND, Machine, MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.assignment import from_metadata, worth
from bigfleet.services.shard.columns import Columns
from bigfleet.services.shard.identities import Identities
from bigfleet.services.shard.interning import Interned
from bigfleet.services.shard.kinds import Kind, kind_of
from bigfleet.services.shard.orders import Order
from bigfleet.services.shard.views import MachineView, Transition
from bigfleet.services.shard.wants import Wants

_S = MachineState
_AT_WORK = (_S.CONFIGURING, _S.CONFIGURED)
# What is on its way to a need, or serves one, stays that need's when nobody counts it for a moment.
_PURPOSEFUL = (_S.CREATING, *_AT_WORK)
# On the way from here to a state without work a machine stays promised to the need it is for.
_PROMISED = (_S.SPECULATIVE, _S.CREATING, _S.DRAINING)


class Inventory:
    """Mirror of the provider's machines. `clusters` is shared with the needs table.

    `provider_name` is what their provider calls itself. `drained_for` tells for which need a
    machine is being drained, None for nobody.
    """

    def __init__(
        self,
        clusters: Interned[str],
        drained_for: Callable[[str], NeedKey | None] = lambda _: None,
    ) -> None:
        self.provider_name = ""
        self._clusters = clusters
        self._drained_for = drained_for
        self._ids = Identities()
        self._columns = Columns()
        self._kinds: Interned[Kind] = Interned()
        self._flavours: list[Flavour] = []
        self._needs: Interned[NeedKey] = Interned()
        self._last_errors: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def state(self, machine_id: str) -> MachineState | None:
        """The state the provider last reported; None for an unknown machine."""
        row = self._ids.row(machine_id)
        return None if row == NONE else MachineState(self._columns.state[row])

    def count_by_state(self) -> dict[MachineState, int]:
        """Machines in each state, those without any included."""
        counts = np.bincount(self._columns.state, minlength=max(MachineState) + 1)
        return {state: int(counts[state]) for state in MachineState}

    @property
    def ids(self) -> Sequence[bytes]:
        """The machines' ids by row, safe from later changes."""
        return self._ids.raw

    def bound_to(self, cluster: str) -> list[MachineView]:
        """The machines that the provider says belong to `cluster`."""
        rows = np.flatnonzero(self._columns.cluster == self._clusters.number(cluster))
        return [self._view(int(row)) for row in rows]

    def view(self, machine_id: str) -> MachineView | None:
        """One machine, None when unknown."""
        row = self._ids.row(machine_id)
        return None if row == NONE else self._view(row)

    def admit(self, machines: Iterable[Machine]) -> None:
        """Make room for machines never seen before, all at once; `apply` then tells of them."""
        ids = list(dict.fromkeys(m.id for m in machines))
        rows = self._ids.rows(ids)
        fresh = [i for i, row in zip(ids, rows, strict=True) if row == NONE]
        if fresh:
            self._ids.add(fresh)
            self._columns.grow(len(fresh))

    def apply(self, machines: Sequence[Machine], now_seconds: float) -> list[Transition]:
        """Take over what the provider says, whatever it is; returns what changed."""
        self.admit(machines)
        rows = self._ids.rows([m.id for m in machines])
        seen = (self._adopt(int(r), m, now_seconds) for r, m in zip(rows, machines, strict=True))
        return [transition for transition in seen if transition is not None]

    def count_known(self, ids: Sequence[str]) -> int:
        """How many of `ids`, each named once, are here."""
        return int((self._ids.rows(ids) != NONE).sum())

    def retain(self, ids: Iterable[str]) -> list[Transition]:
        """Drop every machine not among `ids`, which a full listing named."""
        kept = np.zeros(len(self), np.bool_)
        rows = self._ids.rows(list(ids))
        kept[rows[rows != NONE]] = True
        gone = [self._view(int(row)) for row in np.flatnonzero(~kept)]
        if gone:
            self._ids.keep(kept)
            self._columns.keep(kept)
        for machine in gone:
            self._last_errors.pop(machine.id, None)
        return [
            Transition(m.id, m.state, None, m.cluster, "", "the provider no longer has it")
            for m in gone
        ]

    def attribute(self, order: Order) -> None:
        """Remember which need a machine is created for."""
        row = self._ids.row(order.machine_id)
        if row != NONE and order.need_key is not None:
            self._columns.need[row] = self._needs.number(order.need_key)

    def compact(self) -> None:
        """Forget kinds and needs that no machine has any more."""
        self._columns.flavour = self._kinds.keep(self._columns.flavour)
        self._flavours = [kind.flavour for kind in self._kinds.values]
        self._columns.need = self._needs.keep(self._columns.need)

    def snapshot(self, orders: Iterable[Order]) -> tuple[Fleet, Wants]:
        """The fleet as a decision should see it, safe from later changes.

        Each order under way shows as the state it leads to, unless its machine has moved on. Which
        need wants which machine is told apart, because the needs' own order is not known here.
        """
        columns = self._columns
        fleet = Fleet(
            flavours=tuple(self._flavours),
            clusters=(),
            flavour=columns.flavour.copy(),
            state=columns.state.copy(),
            cluster=columns.cluster.copy(),
            wanted_by=np.full(len(columns.state), NONE, np.int32),
            priority=columns.priority.copy(),
            interruption_bucket=columns.interruption_bucket.copy(),
            reclamation_bucket=columns.reclamation_bucket.copy(),
            unused_since_seconds=columns.unused_since_seconds.copy(),
            tie_break=self._ids.ranks,
        )
        wanted = columns.need.copy()
        for row, order in self._under_way(orders):
            if fleet.state[row] in order.starts_from:
                _overlay(fleet, row, order, self._cluster_number(order.cluster))
                wanted[row] = NONE if order.need_key is None else self._needs.number(order.need_key)
        fleet = replace(fleet, clusters=tuple(self._clusters.values))
        return fleet, Wants(wanted, tuple(self._needs.values))

    def note_claims(
        self, claimed_by: Ints, demand: Demand, keys: Sequence[NeedKey], now_seconds: float
    ) -> None:
        """Remember which need counts each machine, so that the next decision counts it likewise,
        and since when nobody counts it.

        `claimed_by` indexes `keys` and `demand` for each row, in the order of the latest snapshot.
        A machine at work that nobody counts stays its former need's; any other is nobody's then.
        """
        columns = self._columns
        counted = claimed_by != NONE
        claims = np.unique(claimed_by[counted])
        numbers = np.array([self._needs.number(keys[claim]) for claim in claims], np.int32)
        columns.need[~counted & ~np.isin(columns.state, _PURPOSEFUL)] = NONE
        columns.need[counted] = numbers[np.searchsorted(claims, claimed_by[counted])]
        at_work = columns.state == MachineState.CONFIGURED
        columns.unused_since_seconds[at_work & counted] = np.nan
        newly_unused = at_work & ~counted & np.isnan(columns.unused_since_seconds)
        columns.unused_since_seconds[newly_unused] = now_seconds
        self._take_worth(claimed_by, demand)

    def _take_worth(self, claimed_by: Ints, demand: Demand) -> None:
        """A machine at work is worth what the need that it serves now is worth."""
        columns = self._columns
        rows = np.flatnonzero((columns.state == MachineState.CONFIGURED) & (claimed_by != NONE))
        rows = rows[demand.cluster[claimed_by[rows]] == columns.cluster[rows]]
        claims, place = np.unique(claimed_by[rows], return_inverse=True)
        worths = np.array([worth(demand.needs[claim]) for claim in claims], np.int64).reshape(-1, 3)
        columns.priority[rows] = worths[place, 0]
        columns.interruption_bucket[rows] = worths[place, 1]
        columns.reclamation_bucket[rows] = worths[place, 2]

    def _under_way(self, orders: Iterable[Order]) -> Iterator[tuple[int, Order]]:
        under_way = list(orders)
        rows = self._ids.rows([order.machine_id for order in under_way])
        for row, order in zip(rows.tolist(), under_way, strict=True):
            if row != NONE:
                yield row, order

    def _adopt(self, row: int, machine: Machine, now_seconds: float) -> Transition | None:
        columns = self._columns
        before, former = int(columns.state[row]), self._cluster_name(row)
        columns.flavour[row] = self._flavour(machine)
        columns.state[row] = machine.state
        columns.cluster[row] = self._cluster_number(machine.cluster)
        self._remember_error(machine)
        if before == machine.state and former == machine.cluster:
            return None
        strayed = before in BOUND and machine.state in BOUND and former != machine.cluster
        self._remember_purpose(row, machine, 0 if strayed else before)
        # After a restart nobody knows how long a machine has been idle: its hold begins anew.
        idle = machine.state is MachineState.IDLE
        columns.unused_since_seconds[row] = now_seconds if idle else np.nan
        return Transition(
            machine.id,
            MachineState(before) if before else None,
            machine.state,
            former,
            machine.cluster,
            machine.last_error,
        )

    def _remember_error(self, machine: Machine) -> None:
        if machine.last_error:
            self._last_errors[machine.id] = machine.last_error
        else:
            self._last_errors.pop(machine.id, None)

    def _remember_purpose(self, row: int, machine: Machine, before: int) -> None:
        """Whom a machine is for now that it is in another state, and what it is worth.

        A drained machine keeps its worth, and whom it was drained for; a given-back one forgets.
        """
        columns, state = self._columns, machine.state
        made = from_metadata(machine.cluster, machine.shard_metadata)
        if state is MachineState.DRAINING:
            wanted = self._drained_for(machine.id)
            columns.need[row] = NONE if wanted is None else self._needs.number(wanted)
        elif state in _AT_WORK and made is not None and before not in _AT_WORK:
            columns.need[row] = self._needs.number(made.need)
        elif state not in _AT_WORK and before not in _PROMISED:
            columns.need[row] = NONE
        if state in BOUND and made is not None and before not in BOUND:
            self._set_worth(row, made.priority, made.interruption_bucket, made.reclamation_bucket)
        elif state is MachineState.SPECULATIVE:
            self._set_worth(row, 0, penalty.ZERO, penalty.ZERO)

    def _set_worth(self, row: int, priority: int, interruption: int, reclamation: int) -> None:
        self._columns.priority[row] = priority
        self._columns.interruption_bucket[row] = interruption
        self._columns.reclamation_bucket[row] = reclamation

    def _flavour(self, machine: Machine) -> int:
        number = self._kinds.number(kind_of(machine))
        if number == len(self._flavours):
            self._flavours.append(self._kinds[number].flavour)
        return number

    def _cluster_number(self, name: str) -> int:
        return self._clusters.number(name) if name else NONE

    def _cluster_name(self, row: int) -> str:
        number = int(self._columns.cluster[row])
        return "" if number == NONE else self._clusters[number]

    def _view(self, row: int) -> MachineView:
        machine_id, need = self._ids.id(row), int(self._columns.need[row])
        return MachineView(
            machine_id,
            MachineState(self._columns.state[row]),
            self._cluster_name(row),
            None if need == NONE else self._needs[need],
            self._kinds[int(self._columns.flavour[row])],
            self._last_errors.get(machine_id, ""),
        )


def _overlay(fleet: Fleet, row: int, order: Order, cluster: int) -> None:
    fleet.state[row] = order.leads_to
    if order.need is not None and order.leads_to is MachineState.CONFIGURING:
        fleet.cluster[row] = cluster
        priority, interruption_bucket, reclamation_bucket = worth(order.need)
        fleet.priority[row] = priority
        fleet.interruption_bucket[row] = interruption_bucket
        fleet.reclamation_bucket[row] = reclamation_bucket
