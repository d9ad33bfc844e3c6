"""The inventory: every machine in columns, with its provider's state and the need it is for."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bigfleet.engine.columns import LastColumns
from bigfleet.engine.snapshot import NONE, Demand, Flags, Flavour, Fleet, Ints, Longs
from bigfleet.model import penalty
from bigfleet.model.domain import Domain
from bigfleet.model.labels import INSTANCE_TYPE_LABEL
from bigfleet.model.machine import BOUND, MAX_ID_BYTES, Machine, MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.fleet import claims, overlay
from bigfleet.services.shard.fleet.assignment import incarnation_of
from bigfleet.services.shard.fleet.claims import ALL, Rows
from bigfleet.services.shard.fleet.columns import Columns
from bigfleet.services.shard.fleet.holds import Holds
from bigfleet.services.shard.fleet.last_inventory import Content, LastInventory, content_of
from bigfleet.services.shard.fleet.machine_ids import MachineIds
from bigfleet.services.shard.fleet.shard_filter import (
    ShardFilter,
    has_reserved_machine,
    reserved,
)
from bigfleet.services.shard.records.interning import Interned, Numbers
from bigfleet.services.shard.records.machine_class import MachineClass, class_of
from bigfleet.services.shard.records.orders import Order
from bigfleet.services.shard.records.views import (
    BusyMachines,
    FreeMachines,
    MachineView,
    Transition,
)
from bigfleet.services.shard.records.wants import Wants


class Inventory:
    """Mirror of the providers' machines. `numbers` is shared with the needs table.

    `provider_names` are the names that providers give themselves; the key of the only one is "".
    `holds` are the machines for which nothing is ordered. `drained_for` returns the need for which
    a machine is being drained, or None. `shard_filter` selects this shard's machines; decisions see
    only those.
    """

    def __init__(
        self,
        numbers: Numbers,
        drained_for: Callable[[str], NeedKey | None] = lambda _: None,
        shard_filter: ShardFilter | None = None,
    ) -> None:
        self.provider_names: dict[str, str] = {}
        self.holds = Holds()
        #: held by who needs rows to stay: a decision until its end, a listing that is applied
        self.lock = asyncio.Lock()
        self._numbers = numbers
        self._clusters, self._needs = numbers.clusters, numbers.needs
        self._drained_for = drained_for
        self._shard_filter = shard_filter or ShardFilter()
        self._rows: Rows = ALL
        self._ids, self._columns = MachineIds(), Columns()
        self._classes: Interned[MachineClass] = Interned()
        self._flavours: list[Flavour] = []
        self._last_columns = LastColumns()
        self._domains: list[Domain] = []
        #: machines of each flavour, and what follows from them
        self._observed: tuple[Longs, Mapping[Domain, Counter[str]]] | None = None
        self._purchased: tuple[Longs, Sequence[tuple[Flavour, int]]] | None = None
        self._last_errors: dict[str, str] = {}
        #: until all providers have been listed
        self.last: LastInventory | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def state(self, machine_id: str) -> MachineState | None:
        """The state the provider last reported; None for an unknown machine."""
        row = self._ids.row(machine_id)
        return None if row == NONE else MachineState(self._columns.state[row])

    def joined_since(self, seconds: float) -> set[str]:
        """The machines that joined their clusters later than this."""
        rows = np.flatnonzero(self._columns.joined_seconds > seconds)
        return {self._ids.id(row) for row in rows.tolist()}

    def count_by_state(self) -> dict[MachineState, int]:
        """Number of this shard's machines in each state, zeros included."""
        counts = np.bincount(self._columns.state[self.owned()], minlength=max(MachineState) + 1)
        return {state: int(counts[state]) for state in MachineState}

    @property
    def ids(self) -> Sequence[bytes]:
        """The machines' ids by row of the latest snapshot, safe from later changes."""
        return self._ids.raw_of(self._rows)

    def places(self, machine_ids: Sequence[str]) -> Ints:
        """The rows of machines in the latest snapshot, NONE for one that is not in it."""
        return overlay.places(self._ids, self._rows, machine_ids)

    def bound_to(self, cluster: str) -> list[MachineView]:
        """The machines bound to `cluster`."""
        rows = np.flatnonzero(self._columns.cluster == self._clusters.number(cluster))
        return [self._view(row) for row in rows.tolist()]

    def view(self, machine_id: str) -> MachineView | None:
        """One machine, None when unknown."""
        row = self._ids.row(machine_id)
        return None if row == NONE else self._view(row)

    def held_reason(self, machine_id: str) -> str:
        """Why nothing is ordered for a known machine; "" if there is no reason."""
        view = self.view(machine_id)
        return "" if view is None else self.holds.reason(view)

    def provider_name(self, provider: str) -> str:
        """The name that `provider` gives itself; "" until it has been listed."""
        return self.provider_names.get(provider, "")

    def provider_of(self, machine_id: str) -> str | None:
        """The provider that has the machine; None for an unknown one."""
        row = self._ids.row(machine_id)
        known = row != NONE and self._columns.state[row]
        return self._flavours[self._columns.flavour[row]].provider if known else None

    def listed_by_others(self, ids: Sequence[str], provider: str) -> set[str]:
        """Those of the machines `ids` that another provider than `provider` has."""
        rows = self._ids.rows(ids)
        known = np.flatnonzero(rows != NONE)
        others = known[~self._of_provider(provider, rows[known])]
        return {ids[number] for number in others.tolist()}

    def unchanged(self, ids: Sequence[str], digests: Sequence[int], provider: str) -> Iterator[str]:
        """Those of the machines `ids` of `provider` whose last record had this digest, here or in
        the last inventory.
        """
        # They are as their provider gives them, and an array of ids is as wide as the longest.
        shown = [each if len(each) <= MAX_ID_BYTES else "" for each in ids]
        rows, given = self._ids.rows(shown), np.array(digests, np.int32)
        same = self._columns.have_digest(rows, given)
        same[same] = self._of_provider(provider, rows[same])
        if self.last is not None:
            others = np.flatnonzero(rows == NONE)
            named = [shown[number] for number in others.tolist()]
            same[others] = self.last.unchanged(named, given[others], provider)
        return (ids[number] for number in np.flatnonzero(same).tolist())

    def recall(self, ids: Collection[str], now_seconds: float) -> list[Transition]:
        """Adopt those of the machines `ids` that are known from the last inventory alone; return
        the transitions of those that are bound to clusters.
        """
        if self.last is None:
            return []
        ordered = sorted(ids)
        fresh = [i for i, row in zip(ordered, self._ids.rows(ordered), strict=True) if row == NONE]
        if not fresh:
            return []
        self._ids.add(fresh)
        self._columns.grow(len(fresh))
        rows = np.arange(len(self) - len(fresh), len(self), dtype=np.int32)
        self.last.restore(
            self._columns, rows, fresh, self._flavour, self._clusters.number, self._needs.number
        )
        idle = self._columns.state[rows] == MachineState.IDLE
        self._columns.unused_since_seconds[rows[idle]] = now_seconds
        found = self.last.last_errors
        self._last_errors |= {each: found[each] for each in fresh if each in found}
        bound = rows[self._columns.cluster[rows] != NONE]
        return [self._arrival(row) for row in bound.tolist()]

    def content(self) -> Content:
        """What is known of each machine, to be the last inventory of a later process."""
        classes, clusters, needs = self._classes.values, self._clusters.values, self._needs.values
        errors = self._last_errors
        return content_of(LastInventory(self._ids, self._columns, classes, clusters, needs, errors))

    def count_of(self, provider: str) -> int:
        """How many machines of `provider` are known."""
        return int(self._of_provider(provider).sum())

    def ensure_rows(self, machines: Iterable[Machine]) -> None:
        """Add rows for new machines, all at once; `apply` then reports their transitions."""
        ids = list(dict.fromkeys(m.id for m in machines))
        fresh = [i for i, row in zip(ids, self._ids.rows(ids), strict=True) if row == NONE]
        if fresh:
            self._ids.add(fresh)
            self._columns.grow(len(fresh))

    def apply(
        self, machines: Sequence[Machine], now_seconds: float, provider: str = ""
    ) -> list[Transition]:
        """Apply a provider's records, legal or not; return the transitions."""
        self.ensure_rows(machines)
        rows = self._ids.rows([m.id for m in machines]).tolist()
        seen = (
            self._adopt(row, machine, provider, now_seconds)
            for row, machine in zip(rows, machines, strict=True)
        )
        return [transition for transition in seen if transition is not None]

    def begin_full_listing(self, provider: str = "") -> None:
        """Forget which machines of `provider` its listings have named."""
        self._columns.named[self._of_provider(provider)] = False

    def name(self, ids: Sequence[str]) -> None:
        """Note that a listing has named these machines."""
        rows = self._ids.rows(ids)
        self._columns.named[rows[rows != NONE]] = True

    def count_named(self, provider: str) -> int:
        """How many machines of `provider` its listings have named since the last full one began."""
        return int((self._columns.named & self._of_provider(provider)).sum())

    def retain_named(self, provider: str = "") -> list[Transition]:
        """Drop every machine of `provider` not named since its full listing began."""
        kept = self._columns.named | ~self._of_provider(provider)
        lost = np.flatnonzero(~kept).tolist()
        gone = [(self._view(row), self._owns_row(row)) for row in lost]
        if gone:
            self._ids.keep(kept)
            self._columns.keep(kept)
        for machine, _ in gone:
            self._last_errors.pop(machine.id, None)
        why = "the provider no longer has it"
        return [
            Transition(m.id, m.state, None, m.cluster, "", why, own, m.provider) for m, own in gone
        ]

    def attribute(self, order: Order) -> None:
        """Record which need a machine is created for."""
        row = self._ids.row(order.machine_id)
        if row != NONE and order.need_key is not None:
            self._columns.need[row] = self._needs.number(order.need_key)

    def unclaim(self, machine_id: str) -> None:
        """Forget which need a machine was last counted for: it never ran there."""
        row = self._ids.row(machine_id)
        if row != NONE:
            self._columns.need[row] = NONE

    def compact(self) -> None:
        """Drop classes that no machine has any more, and needs that are gone once they are most."""
        alive = self._classes.alive(self._columns.flavour)
        self._flavours = [self._flavours[number] for number in alive]
        self._domains = [self._domains[number] for number in alive]
        self._observed = self._purchased = None
        self._columns.flavour = self._classes.keep(self._columns.flavour)
        self._columns.need = self._numbers.keep_needs(self._columns.need)

    def snapshot(
        self,
        orders: Iterable[Order],
        hidden: Callable[[Fleet], Flags] | None = None,
        release_costs: Mapping[str, float] | None = None,
    ) -> tuple[Fleet, Wants]:
        """An immutable snapshot of this shard's machines for a decision.

        A machine with an order under way appears in the state that the order leads to, unless it
        has changed state since. Wants are separate, because the order of needs is not known here.
        `hidden` selects machines to leave out; `release_costs` are the known disruption costs.
        """
        columns = self._columns
        own = None if self._shard_filter.is_everything else np.flatnonzero(self.owned())
        rows = self._rows = ALL if own is None else own.astype(np.int32)
        fleet = Fleet(
            flavours=self._last_columns.of(self._flavours),
            clusters=(),
            last_claimed_by=np.full(len(columns.state[rows]), NONE, np.int32),
            destination=np.full(len(columns.state[rows]), NONE, np.int32),
            disruption_cost=overlay.costs(self._ids, rows, release_costs or {}),
            tie_break=self._ids.ranks[rows],
            **columns.copies(rows),
        )
        wanted = columns.need[rows].copy()
        for place, order in overlay.under_way(self._ids, rows, orders):
            if fleet.state[place] in order.starts_from:
                overlay.show(fleet, place, order, self._cluster_number(order.cluster))
                key = order.need_key
                wanted[place] = NONE if key is None else self._needs.number(key)
        overlay.protect(fleet, self._out_of_domain_flags()[rows])
        if self.holds.exist:
            held = self.holds.flags(columns.flavour, self._flavours, self._ids.rows)
            fleet = self.holds.show(fleet, wanted, held[rows])
        overlay.note_destinations(fleet, wanted, self._needs.values, self._cluster_number)
        fleet = replace(fleet, clusters=tuple(self._clusters.values))
        if hidden is not None and (gone := hidden(fleet)).any():
            fleet, wanted = fleet.of_rows(~gone), wanted[~gone]
            self._rows = np.arange(len(self), dtype=np.int32)[rows][~gone]
        return fleet, Wants(wanted, tuple(self._needs.values))

    def note_claims(
        self,
        claimed_by: Ints,
        headroom: Collection[int],
        demand: Demand,
        keys: Sequence[NeedKey],
        now_seconds: float,
    ) -> Iterator[None]:
        """Record which need counts each machine, so that the next decision does likewise, and
        since when none does. Yields between short chunks of work. `claimed_by` indexes `keys` and
        `demand` for each row of the latest snapshot, `headroom` are rows reserved for gangs.
        """
        columns, rows = self._columns, self._rows
        claims.note_headroom(columns, rows, headroom)
        claims.track_unused_since(columns, rows, claimed_by, now_seconds)
        for number, (chunk, chunk_claims) in enumerate(claims.chunks(rows, claimed_by)):
            if number:
                yield
            claims.note(columns, chunk, self._needs, chunk_claims, demand, keys)
            claims.end_additional(columns, chunk, self._needs, chunk_claims, demand)
            claims.update_penalties(columns, chunk, chunk_claims, demand)

    def owned(self) -> Flags:
        """For each row whether this shard decides about it."""
        return self._shard_filter.owned(self._columns, self._domains, self._clusters.values)

    def owns(self, machine_id: str) -> bool:
        """Whether this shard decides about the machine; False for an unknown one."""
        row = self._ids.row(machine_id)
        return row != NONE and self._columns.state[row] != 0 and self._owns_row(row)

    def domain(self, machine_id: str) -> Domain | None:
        """The domain of a machine; None for an unknown one."""
        row = self._ids.row(machine_id)
        known = row != NONE and self._columns.state[row]
        return self._domains[self._columns.flavour[row]] if known else None

    def has_reserved_machine_in(self, domain: Domain) -> bool:
        """Whether a machine in `domain` is reserved for a need and not bound to its cluster yet."""
        return has_reserved_machine(self._columns, self._domains, domain)

    def count_listed(self) -> int:
        """How many machines are known, including those of other shards."""
        return int(np.count_nonzero(self._columns.state))

    def observed_domains(self) -> Mapping[Domain, Counter[str]]:
        """Machines in each domain by instance type, including those of other shards: the same
        object for as long as nothing of it changes.
        """
        counts = self._by_flavour(self._columns.state != 0)
        if self._observed is None or not np.array_equal(self._observed[0], counts):
            seen: defaultdict[Domain, Counter[str]] = defaultdict(Counter)
            for number in np.flatnonzero(counts).tolist():
                instance_type = self._flavours[number].labels[INSTANCE_TYPE_LABEL]
                seen[self._domains[number]][instance_type] += int(counts[number])
            self._observed = counts, seen
        return self._observed[1]

    def purchased(self) -> Sequence[tuple[Flavour, int]]:
        """How many machines of each flavour are not speculative, including those of other shards:
        the same object for as long as nothing of it changes.
        """
        state = self._columns.state
        counts = self._by_flavour((state != 0) & (state != MachineState.SPECULATIVE))
        if self._purchased is None or not np.array_equal(self._purchased[0], counts):
            numbers = np.flatnonzero(counts).tolist()
            found = [(self._flavours[number], int(counts[number])) for number in numbers]
            self._purchased = counts, found
        return self._purchased[1]

    def machines_in_use(self) -> Counter[Domain]:
        """Machines in each domain that are bound to a cluster, or reserved for one."""
        in_use = (self._columns.cluster != NONE) | reserved(self._columns)
        counts = self._by_flavour(in_use)
        used: Counter[Domain] = Counter()
        for number in np.flatnonzero(counts).tolist():
            used[self._domains[number]] += int(counts[number])
        return used

    def _by_flavour(self, rows: Flags) -> Longs:
        """How many of these rows each flavour has."""
        counts = np.bincount(self._columns.flavour[rows], minlength=len(self._flavours))
        return counts.astype(np.int64, copy=False)

    def domains_serving(self, profiles: Collection[str]) -> set[Domain]:
        """The domains with machines for needs of these profiles, given by fingerprint."""
        served = self._needs.alive(self._columns.need)
        needs = [number for number in served if self._needs[number].fingerprint in profiles]
        rows = np.isin(self._columns.need, needs)
        return {self._domains[n] for n in np.unique(self._columns.flavour[rows]).tolist()}

    def free(self, *, owned: bool) -> Iterator[FreeMachines]:
        """The idle and speculative machines of this shard, or those of all others, by flavour."""
        for number, idle, speculative in self._columns.free_by_flavour(self.owned() == owned):
            domain = self._domains[number]
            yield FreeMachines(number, self._flavours[number], domain, idle, speculative)

    def busy_of_other_shards(self) -> BusyMachines:
        """Machines in use in other shards' domains, as far as their metadata says for what, and not
        pinned; and those that are being drained in this shard's.
        """
        columns, others = self._columns, ~self.owned() & (self._columns.cluster != NONE)
        in_own = self._shard_filter.in_own_domains(columns, self._domains)
        movable = (columns.need != NONE) & (columns.interruption_bucket != penalty.PINNED)
        busy = others & ~in_own & movable & (columns.state == MachineState.CONFIGURED)
        coming = others & in_own & (columns.state == MachineState.DRAINING)
        rows = np.flatnonzero(busy | coming)
        return BusyMachines(
            [self._ids.id(row) for row in rows.tolist()],
            columns.flavour[rows],
            columns.priority[rows],
            coming[rows],
            tuple(self._flavours),
            tuple(self._domains),
        )

    def labels(self, key: str, *, owned: bool) -> set[str]:
        """The values of a label on this shard's machines, or on those of all other shards."""
        rows = (self._columns.state != 0) & (self.owned() == owned)
        labels = (self._flavours[n].labels for n in np.unique(self._columns.flavour[rows]).tolist())
        return {each[key] for each in labels if key in each}

    def out_of_domain_machines(self, most: int) -> tuple[list[tuple[str, str, Domain]], int]:
        """The first `most` machines bound to this shard's clusters in domains of other shards,
        each with its cluster and domain; and how many more there are.
        """
        rows = np.flatnonzero(self._out_of_domain_flags()).tolist()
        views = [self._view(row) for row in rows[:most]]
        domain_of = self._shard_filter.domain_of
        found = [(v.id, v.cluster, domain_of(dict(v.machine_class.labels))) for v in views]
        return found, len(rows) - len(found)

    def _out_of_domain_flags(self) -> Flags:
        clusters = self._clusters.values
        return self._shard_filter.out_of_domain_machines(self._columns, self._domains, clusters)

    def _of_provider(self, provider: str, rows: Rows = ALL) -> Flags:
        """Which of `rows` are of `provider`, or without a record yet."""
        if not provider:  # the only one: a fleet has thousands of flavours
            return np.ones(len(self._columns.flavour[rows]), np.bool_)
        flags = np.array([*(f.provider == provider for f in self._flavours), True], np.bool_)
        of_rows: Flags = flags[self._columns.flavour[rows]]
        return of_rows

    def _adopt(
        self, row: int, machine: Machine, provider: str, now_seconds: float
    ) -> Transition | None:
        columns = self._columns
        before, former = int(columns.state[row]), self._cluster_name(row)
        was_owned = before != 0 and self._owns_row(row)
        columns.flavour[row] = self._flavour(class_of(machine, provider))
        columns.state[row] = machine.state
        columns.cluster[row] = self._cluster_number(machine.cluster)
        columns.incarnation[row] = incarnation_of(machine.shard_metadata) if machine.cluster else 0
        columns.digest[row] = machine.digest
        self._last_errors.pop(machine.id, None)
        if machine.last_error:
            self._last_errors[machine.id] = machine.last_error
        if before == machine.state and former == machine.cluster:
            return None
        changed_cluster = before in BOUND and machine.state in BOUND and former != machine.cluster
        claims.update_claim(
            columns, row, machine, 0 if changed_cluster else before, self._needs, self._drained_for
        )
        # After a restart it is unknown how long a machine has been idle: its hold starts again.
        idle = machine.state is MachineState.IDLE
        columns.unused_since_seconds[row] = now_seconds if idle else np.nan
        joined = before != 0 and machine.state is MachineState.CONFIGURED
        columns.joined_seconds[row] = now_seconds if joined else np.nan
        was, owned = MachineState(before) if before else None, was_owned or self._owns_row(row)
        error, cluster = machine.last_error, machine.cluster
        return Transition(machine.id, was, machine.state, former, cluster, error, owned, provider)

    def _arrival(self, row: int) -> Transition:
        """The transition of a machine that was not known before."""
        view, owned = self._view(row), self._owns_row(row)
        error, provider = view.last_error, view.provider
        return Transition(view.id, None, view.state, "", view.cluster, error, owned, provider)

    def _flavour(self, machine_class: MachineClass) -> int:
        number = self._classes.number(machine_class)
        if number == len(self._flavours):
            self._flavours.append(self._classes[number].flavour)
            self._domains.append(self._shard_filter.domain_of(self._flavours[number].labels))
        return number

    def _owns_row(self, row: int) -> bool:
        domain = self._domains[self._columns.flavour[row]]
        return self._shard_filter.has(self._columns, row, domain, self._cluster_name(row))

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
            self._classes[int(self._columns.flavour[row])],
            self._last_errors.get(machine_id, ""),
            int(self._columns.incarnation[row]),
        )
