"""Every machine of this shard, in columns: what the provider says, and what each one is for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bigfleet.engine.snapshot import NONE, Flavour, Fleet, Ints
from bigfleet.model import penalty
from bigfleet.model.machine import BOUND, Machine, MachineState
from bigfleet.services.shard.assignment import NeedKey, assignment, from_metadata
from bigfleet.services.shard.columns import Columns
from bigfleet.services.shard.identities import Identities
from bigfleet.services.shard.interning import Interned
from bigfleet.services.shard.kinds import Kind, kind_of
from bigfleet.services.shard.orders import Order

# A machine in these states is for some need, even if only its former one in the others.
_PURPOSEFUL = (MachineState.CREATING, MachineState.CONFIGURING, MachineState.CONFIGURED)


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of state or cluster. `before` is None at first sight, `after` when it is gone."""

    machine_id: str
    before: MachineState | None
    after: MachineState | None
    former_cluster: str
    cluster: str
    last_error: str


@dataclass(frozen=True, slots=True)
class MachineView:
    """One machine as it is known here; `need` is what it is or was last bound for."""

    id: str
    state: MachineState
    cluster: str
    need: NeedKey | None
    kind: Kind
    last_error: str


class Inventory:
    """Mirror of the provider's machines. `clusters` is shared with the needs table.

    `provider_name` is what their provider calls itself.
    """

    def __init__(self, clusters: Interned[str]) -> None:
        self.provider_name = ""
        self._clusters = clusters
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

    def id(self, row: int) -> str:
        """The machine in `row` of the last snapshot."""
        return self._ids.id(row)

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
        if row != NONE and order.need is not None:
            key = NeedKey(order.cluster, *order.need.key)
            self._columns.need[row] = self._needs.number(key)

    def compact(self) -> None:
        """Forget kinds and needs that no machine has any more."""
        self._columns.flavour = self._kinds.keep(self._columns.flavour)
        self._flavours = [kind.flavour for kind in self._kinds.values]
        self._columns.need = self._needs.keep(self._columns.need)

    def snapshot(self, orders: Iterable[Order]) -> Fleet:
        """The fleet as a decision should see it, safe from later changes.

        Each order under way shows as the state it leads to, unless its machine has moved on.
        Which need wants which machine is not in it yet: `attributed` adds that, once it is known
        in which shape the needs are served.
        """
        under_way = [(r, o, self._cluster_number(o.cluster)) for r, o in self._under_way(orders)]
        columns = self._columns
        fleet = Fleet(
            flavours=tuple(self._flavours),
            clusters=tuple(self._clusters.values),
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
        for row, order, cluster in under_way:
            if fleet.state[row] == order.starts_from:
                _overlay(fleet, row, order, cluster)
        return fleet

    def attributed(
        self, fleet: Fleet, orders: Iterable[Order], position: Callable[[NeedKey], int]
    ) -> Fleet:
        """`fleet`, this inventory's latest snapshot, with the need that wants each machine.

        `position` gives a need's index in the demand, NONE when nobody asks for it any more.
        """
        wanted_by = self._wanted_by(position)
        for row, order in self._under_way(orders):
            if order.need is not None and fleet.state[row] == order.leads_to:
                wanted_by[row] = position(NeedKey(order.cluster, *order.need.key))
        return replace(fleet, wanted_by=wanted_by)

    def note_claims(self, claimed_by: Ints, keys: Sequence[NeedKey], now_seconds: float) -> None:
        """Remember which need counts each machine, so that the next decision counts it likewise,
        and since when nobody counts it.

        `claimed_by` indexes `keys` for each row, in the order of the latest snapshot.
        """
        columns = self._columns
        counted = np.isin(columns.state, _PURPOSEFUL) & (claimed_by != NONE)
        claims = np.unique(claimed_by[counted])
        numbers = np.array([self._needs.number(keys[claim]) for claim in claims], np.int32)
        columns.need[counted] = numbers[np.searchsorted(claims, claimed_by[counted])]
        at_work = columns.state == MachineState.CONFIGURED
        columns.unused_since_seconds[at_work & counted] = np.nan
        newly_unused = at_work & ~counted & np.isnan(columns.unused_since_seconds)
        columns.unused_since_seconds[newly_unused] = now_seconds

    def _under_way(self, orders: Iterable[Order]) -> Iterator[tuple[int, Order]]:
        under_way = list(orders)
        rows = self._ids.rows([order.machine_id for order in under_way])
        for row, order in zip(rows.tolist(), under_way, strict=True):
            if row != NONE:
                yield row, order

    def _wanted_by(self, position: Callable[[NeedKey], int]) -> Ints:
        purposeful = np.isin(self._columns.state, _PURPOSEFUL)
        needs = np.where(purposeful, self._columns.need, NONE)
        positions = np.full(len(self._needs) + 1, NONE, np.int32)  # the last entry is for NONE
        for number in np.unique(needs[needs != NONE]):
            positions[number] = position(self._needs[int(number)])
        wanted: Ints = positions[needs]
        return wanted

    def _adopt(self, row: int, machine: Machine, now_seconds: float) -> Transition | None:
        columns = self._columns
        before, former = int(columns.state[row]), self._cluster_name(row)
        columns.flavour[row] = self._flavour(machine)
        columns.state[row] = machine.state
        columns.cluster[row] = self._cluster_number(machine.cluster)
        self._remember_error(machine)
        self._remember_purpose(row, machine, is_new=before != machine.state)
        if before == machine.state and former == machine.cluster:
            return None
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

    def _remember_purpose(self, row: int, machine: Machine, *, is_new: bool) -> None:
        """An idle machine keeps what it was last bound for; a given-back one forgets it."""
        columns = self._columns
        if machine.state in BOUND:
            made = from_metadata(machine.cluster, machine.shard_metadata)
            if made is not None:
                columns.need[row] = self._needs.number(made.need)
                columns.priority[row] = made.priority
                columns.interruption_bucket[row] = made.interruption_bucket
                columns.reclamation_bucket[row] = made.reclamation_bucket
        elif machine.state is MachineState.SPECULATIVE and is_new:
            columns.need[row] = NONE
            columns.priority[row] = 0
            columns.interruption_bucket[row] = penalty.ZERO
            columns.reclamation_bucket[row] = penalty.ZERO

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
    if order.need is not None and order.leads_to is not MachineState.CREATING:
        made = assignment(order.cluster, order.need)
        fleet.cluster[row] = cluster
        fleet.priority[row] = made.priority
        fleet.interruption_bucket[row] = made.interruption_bucket
        fleet.reclamation_bucket[row] = made.reclamation_bucket
