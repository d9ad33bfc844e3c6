"""Inputs of a decision: the fleet in columns, the demand in order, and the settings.

A *flavour* is everything that machines have in common: labels, taints, capacity type, price,
interruption probability, allocatable, and whether the Node is cordoned. A fleet of 500,000 machines
has about a thousand flavours, so whatever depends on labels or price is computed once per flavour,
and a row holds only numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from bigfleet.flags import Flag, parse_numbers
from bigfleet.model.ceiling import Ceiling
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import Need, NodeOverhead, Taint

NONE = -1
# The states of machines that belong to no cluster and can be ordered, in this order.
ACQUIRABLE = (MachineState.IDLE, MachineState.SPECULATIVE)
# The states of machines that are their cluster's.
IN_SERVICE = (MachineState.CONFIGURED, MachineState.CONFIGURING)

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]


def in_states(state: Bytes, states: Iterable[MachineState]) -> Flags:
    """Which machines are in one of `states`."""
    found = np.zeros(len(state), np.bool_)
    for each in states:  # some comparisons take a tenth of the time of a look into a table
        found |= state == int(each)
    return found


def flags_of(chosen: Iterable[int], number: int) -> Flags:
    """A table of flags for the numbers below `number`, True for those `chosen`, and at the end
    False, where NONE (-1) finds it.
    """
    flags = np.zeros(number + 1, np.bool_)
    flags[[*chosen]] = True
    return flags


@dataclass(frozen=True)
class Flavour:
    """What equal machines have in common; `allocatable` in the units of `model.resources`.

    A `limited` machine's Node takes no new pods: its `allocatable` is what its pods request, and
    DaemonSet overhead is not subtracted. `provider` sells them; "" if there is only one.
    """

    labels: Mapping[str, str]
    capacity_type: CapacityType
    price_per_hour: float
    interruption_probability: float
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    limited: bool = False
    provider: str = ""


@dataclass(frozen=True)
class Fleet:
    """n machines, one per row; rows keep their index until machines are added or removed.

    An operation in progress shows as the state it leads to (a machine about to be configured is
    CONFIGURING), so that it is not ordered again.
    """

    flavours: Sequence[Flavour]
    clusters: Sequence[str]
    #: [n] int32, index of `flavours`
    flavour: Ints
    #: [n] uint8, MachineState
    state: Bytes
    #: [n] int32, index of `clusters`; NONE for a machine that is not bound
    cluster: Ints
    #: [n] int32, the cluster that a CREATING or DRAINING machine is for: it is supply for that
    #: cluster even if the requesting need is gone; NONE if unknown or without a requester
    destination: Ints
    #: [n] int32, the need that `Decision.claimed_by` last named for the machine, or that it was
    #: bound for; NONE if unknown or gone. CREATING and DRAINING machines are supply for that need
    #: only; an IDLE one is reserved for it as long as the need has a reservation
    last_claimed_by: Ints
    #: [n] int32, the priority of the need that the machine last served; kept after a drain
    priority: Ints
    #: [n] uint8, penalty buckets of that need; 0 for unknown
    interruption_bucket: Bytes
    reclamation_bucket: Bytes
    #: [n] float64, since when an IDLE machine has been idle, or a CONFIGURED one unclaimed; NaN if
    #: unknown or claimed
    unused_since_seconds: Floats
    #: [n] bool, kept or acquired by the last decision as headroom for gangs
    headroom: Flags
    #: [n] float64, the cost of disrupting the pods on a CONFIGURED machine, as its cluster's
    #: operator has just reported it: 0 for an empty machine, inf for one that must stay, NaN if not
    #: queried
    disruption_cost: Floats
    #: [n] int64, orders otherwise equal rows (by machine id)
    tie_break: Longs
    #: [n] bool, machines that must not be ordered now: IDLE and SPECULATIVE ones because an equal
    #: one has just failed, and all of a provider that does not answer; None for none
    backed_off: Flags | None = None
    #: [n] int32, the cluster in which an equal machine has just failed to boot, and which must not
    #: acquire or preempt this one now; NONE for none
    backed_off_for: Ints | None = None
    #: [n] int32, a second cluster of this kind; NONE for none
    backed_off_for_too: Ints | None = None

    def __len__(self) -> int:
        return len(self.flavour)

    @property
    def acquirable(self) -> Flags:
        """Which machines [n] belong to no cluster and can be ordered."""
        return in_states(self.state, ACQUIRABLE)

    def backs_off(self, cluster: int, rows: Rows) -> Flags:
        """Which of the machines in `rows` [P] must not be ordered now for `cluster`."""
        flags = np.zeros(len(rows), np.bool_)
        if self.backed_off is not None:
            flags |= self.backed_off[rows]
        for column in (self.backed_off_for, self.backed_off_for_too):
            if column is not None:
                flags |= column[rows] == cluster
        return flags

    def by_tie_break(self, rows: Rows) -> Rows:
        """Ascending `rows` sorted by tie break."""
        ties = self.tie_break[rows]
        is_sorted = bool((ties[1:] > ties[:-1]).all())
        return rows if is_sorted else rows[np.argsort(ties, kind="stable")]

    def of_rows(self, kept: Flags) -> Fleet:
        """The fleet reduced to the `kept` [n] rows."""
        columns: dict[str, Any] = {name: column[kept] for name, column in self.columns().items()}
        return replace(self, **columns)

    def columns(self) -> Mapping[str, NDArray[Any]]:
        """All values that machines have, by name, each [n]."""
        return {name: each for name, each in vars(self).items() if isinstance(each, np.ndarray)}


@dataclass(frozen=True)
class Demand:
    """N needs of all clusters in the order in which they are served: by descending priority, then
    arrival, cluster name and need key. Clusters are indices of `Fleet.clusters`.
    """

    needs: Sequence[Need]
    #: [N] int32
    cluster: Ints
    #: clusters that have sent a roll-up since this shard started: others keep their machines
    reported: frozenset[int]
    #: clusters whose operator is unreachable: they keep their machines
    unreachable: frozenset[int] = frozenset()
    #: clusters for which nothing is acquired or preempted, because they would not use it
    suspended: frozenset[int] = frozenset()
    #: limits on acquisitions; their priority limit is applied to the needs already
    ceilings: Mapping[int, Ceiling] = field(default_factory=dict)
    #: what DaemonSets use on the cluster's machines
    overheads: Mapping[int, Sequence[NodeOverhead]] = field(default_factory=dict)
    #: when demand last grew or shrank in any size, on the decision's clock; absent if never seen
    rose_seconds: Mapping[int, float] = field(default_factory=dict)
    fell_seconds: Mapping[int, float] = field(default_factory=dict)
    #: [N] int32, for whoever keeps demands: the number of each need's key, NONE for one that has
    #: none; None if no need has
    number: Ints | None = None

    @property
    def reachable(self) -> frozenset[int]:
        """The clusters that machines may be taken from."""
        return self.reported - self.unreachable


@dataclass(frozen=True)
class VictimWeights:
    """Weights of the eviction score: gap x priority_gap + drain / seconds of grace + interruption /
    interruption penalty + reclamation / reclamation penalty.

    With the defaults the gap between the priorities dominates, and the penalties decide among
    victims of nearly equal priority.
    """

    priority_gap: float = 1.0
    drain: float = 0.1
    interruption: float = 0.1
    reclamation: float = 0.1

    def __post_init__(self) -> None:
        """Raise InvalidInput for a weight that is not a finite number >= 0."""
        for name in self.__dataclass_fields__:
            weight = getattr(self, name)
            if not 0 <= weight < math.inf:
                raise InvalidInput(f"victim weight {name}", weight, "is not a finite number >= 0")


_WEIGHTS = "GAP,DRAIN,INTERRUPTION,RECLAMATION"
_VICTIM_WEIGHTS = Flag(
    "--victim-weights",
    "weights in the choice of preemption victims",
    _WEIGHTS,
    parse=lambda text: VictimWeights(*parse_numbers(text, _WEIGHTS)),
    show=lambda weights: ",".join(f"{weight:g}" for weight in vars(weights).values()),
)


@dataclass(frozen=True)
class EngineConfig:
    """Settings of decisions."""

    #: fraction of a cluster's CONFIGURED machines that may be reclaimed per cycle (at least one)
    reclaim_cap_fraction: Annotated[
        float,
        Flag(
            "--reclaim-cap-fraction",
            "share of a cluster's machines reclaimed per cycle at most",
            "SHARE",
        ),
    ] = 0.05
    #: for how long machines must have been surplus before a cluster's are reclaimed
    reclaim_hold_seconds: Annotated[
        float,
        Flag(
            "--reclaim-hold",
            "how long a cluster must have surplus machines before they are reclaimed",
            "SECONDS",
        ),
    ] = 30.0
    #: if a cluster acquires a machine within this time after a reclaim, although its demand has
    #: hardly grown, its reclaim hold doubles; and machines with pods must have been surplus for so
    #: long if no fall of demand explains it
    reacquire_seconds: float = 600.0
    #: fraction by which a cluster's demand must be able to grow on what stays after a reclaim
    reclaim_margin: float = 0.05
    #: how much more than the cheapest, per unit of pods, a machine that holds more pods may cost
    price_tolerance: float = 0.3
    #: how long an unclaimed IDLE machine is kept; absent for ever
    idle_hold_seconds: Annotated[
        Mapping[CapacityType, float],
        Flag(
            "--on-demand-hold",
            "how long an idle on-demand machine is kept",
            "SECONDS",
            key=CapacityType.ON_DEMAND,
        ),
        Flag(
            "--spot-hold",
            "how long an idle spot machine is kept",
            "SECONDS",
            key=CapacityType.SPOT,
        ),
    ] = field(default_factory=lambda: {CapacityType.ON_DEMAND: 600.0, CapacityType.SPOT: 60.0})
    #: grace period of a reclaim without a requester
    voluntary_grace_seconds: int = 600
    victim_weights: Annotated[VictimWeights, _VICTIM_WEIGHTS] = VictimWeights()
    #: for how long machines are reserved for a need that does not have all of them yet
    reservation_seconds: Annotated[
        float,
        Flag(
            "--reservation",
            "how long machines are reserved for a need that is only partly satisfied",
            "SECONDS",
        ),
    ] = 900.0
    #: fraction of its pods by which each size is expected to grow while machines are acquired, so
    #: that these are large enough
    growth: float = 0.1

    def __post_init__(self) -> None:
        """Raise InvalidInput for a value out of range."""
        for name in ("reclaim_cap_fraction", "reclaim_margin", "price_tolerance", "growth"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInput(name, getattr(self, name), "is not in 0..1")
        spans = {
            "reclaim_hold_seconds": self.reclaim_hold_seconds,
            "reacquire_seconds": self.reacquire_seconds,
            "voluntary_grace_seconds": self.voluntary_grace_seconds,
            "reservation_seconds": self.reservation_seconds,
            **{f"idle_hold_seconds of {t.name}": s for t, s in self.idle_hold_seconds.items()},
        }
        for name, seconds in spans.items():
            if not seconds >= 0:
                raise InvalidInput(name, seconds, "is not a time >= 0")
