"""What a decision is made from: the fleet in columns, the demand in order, and the time.

A *flavour* is everything that machines can share: labels, capacity type, price, interruption
probability, allocatable. A fleet of 500,000 machines has some thousand flavours, so whatever
depends on labels or price is computed once per flavour, and a row holds only numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from bigfleet.flags import Flag, parse_numbers
from bigfleet.model.ceiling import Ceiling
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import CapacityType
from bigfleet.model.need import Need, NodeOverhead, Taint

NONE = -1

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Flavour:
    """What the machines of one kind share; `allocatable` in the units of `model.resources`. Of a
    `limited` one that is what its pods hold, and DaemonSets' pods are not subtracted from it.
    """

    labels: Mapping[str, str]
    capacity_type: CapacityType
    price_per_hour: float
    interruption_probability: float
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    limited: bool = False


@dataclass(frozen=True)
class Fleet:
    """One row per machine, n rows; rows keep their index as long as nothing is added or removed.

    `flavour` indexes `flavours`, `cluster` indexes `clusters` (NONE when unbound).
    `last_claimed_by` indexes the demand's needs: the one that `Decision.claimed_by` last named for
    the machine, or else that it was bound for; NONE where unknown or where that need is gone. A
    CREATING machine is supply for that need only, and so is a DRAINING one: it was drained for it.
    An IDLE machine is kept for that need as long as the need has a reservation. `priority`,
    `interruption_bucket` and `reclamation_bucket` are those of the need that the machine last
    served; they outlast a drain. `unused_since_seconds` is when an IDLE machine became so, or since
    when no need counts a CONFIGURED one; NaN where unknown or where a need counts it. An order
    under way shows as the state it leads to (a machine about to be configured is CONFIGURING), so
    that no second order is derived. `tie_break` orders otherwise equal rows (by id).

    `destination` is the cluster that a CREATING or DRAINING machine is for, NONE where unknown or
    for nobody: it is supply for that cluster's needs, also when the need that asked is gone.
    `headroom` marks the machines that the last decision kept or acquired ahead of a cluster's
    gangs. `disruption_cost` is what giving a CONFIGURED machine back would cost those whose pods
    run there, as their operator has just reported it: 0 where it is empty, infinite where it must
    not go, NaN where nobody has been asked. `backed_off` marks IDLE and SPECULATIVE machines that
    are given to nobody now, because such a machine has just failed; None for none.
    """

    flavours: Sequence[Flavour]
    clusters: Sequence[str]
    flavour: Ints
    state: Bytes
    cluster: Ints
    destination: Ints
    last_claimed_by: Ints
    priority: Ints
    interruption_bucket: Bytes
    reclamation_bucket: Bytes
    unused_since_seconds: Floats
    headroom: Flags
    disruption_cost: Floats
    tie_break: Longs
    backed_off: Flags | None = None

    def __len__(self) -> int:
        return len(self.flavour)

    def of_rows(self, kept: Flags) -> Fleet:
        """The fleet of those rows alone."""
        columns: dict[str, Any] = {
            name: column[kept]
            for name, column in vars(self).items()
            if isinstance(column, np.ndarray)
        }
        return replace(self, **columns)


@dataclass(frozen=True)
class Demand:
    """The needs of all clusters in the order they are served: priority descending, arrival
    ascending, cluster name ascending, then need key.

    `cluster` indexes `Fleet.clusters` for each need. `reported` are the clusters (same index) that
    have sent a roll-up since this shard started: only from theirs may machines be taken away.
    `unreachable` are clusters whose operator cannot be told anything now: nothing is taken there.
    For `suspended` clusters nothing is acquired or taken: nobody there would make use of it.
    `overheads` is what each cluster's DaemonSets take of its machines. `rose_seconds` and
    `fell_seconds` are when a cluster's demand last grew and last shrank in any size, on the
    decision's clock; absent where it has not been seen to. `ceilings` bound what is acquired for a
    cluster; the bound of its priority is in the needs already.
    """

    needs: Sequence[Need]
    cluster: Ints
    reported: frozenset[int]
    unreachable: frozenset[int] = frozenset()
    suspended: frozenset[int] = frozenset()
    ceilings: Mapping[int, Ceiling] = field(default_factory=dict)
    overheads: Mapping[int, Sequence[NodeOverhead]] = field(default_factory=dict)
    rose_seconds: Mapping[int, float] = field(default_factory=dict)
    fell_seconds: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class VictimWeights:
    """What speaks for evicting a machine's pods: score = gap x priority_gap + drain / seconds of
    grace + interruption / interruption penalty + reclamation / reclamation penalty.

    At the defaults the gap between the priorities decides, and the penalties decide among
    victims of nearly equal priority.
    """

    priority_gap: float = 1.0
    drain: float = 0.1
    interruption: float = 0.1
    reclamation: float = 0.1

    def __post_init__(self) -> None:
        """InvalidInput for a weight that is no finite number >= 0."""
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
    """What may be tuned about decisions.

    reclaim_cap_fraction: of a cluster's CONFIGURED machines, how many may be reclaimed per cycle
    (at least one). reclaim_hold_seconds: for how long a cluster must have had machines to spare
    before it gives them back. rebuy_seconds: a cluster that acquires a machine within this time
    after giving one back, though its demand has hardly grown, holds on to its machines for twice as
    long from then on. reclaim_reserve: the part by which a cluster's demand may grow and still fit
    what stays after a reclaim. price_tolerance: how much dearer per useful unit than the cheapest a
    larger machine may be and still be preferred. idle_hold_seconds: how long an unclaimed IDLE
    machine is kept, by capacity type; a type that is absent is kept for ever.
    voluntary_grace_seconds: the drain grace of a reclaim that nobody waits for.
    reservation_seconds: for how long machines are kept for a need that does not have all of them
    yet. arrival_grace_seconds: for how long after a machine's arrival nothing is acquired for
    additional needs of its cluster. growth: by which part of its pods each size is expected to grow
    while machines are acquired, so that these are large enough.
    """

    reclaim_cap_fraction: Annotated[
        float,
        Flag(
            "--reclaim-cap-fraction",
            "share of a cluster's machines reclaimed per cycle at most",
            "SHARE",
        ),
    ] = 0.05
    reclaim_hold_seconds: Annotated[
        float,
        Flag(
            "--reclaim-hold",
            "how long a cluster must have surplus machines before they are reclaimed",
            "SECONDS",
        ),
    ] = 30.0
    reacquire_seconds: float = 600.0
    reclaim_margin: float = 0.05
    price_tolerance: float = 0.3
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
    voluntary_grace_seconds: int = 600
    victim_weights: Annotated[VictimWeights, _VICTIM_WEIGHTS] = VictimWeights()
    reservation_seconds: Annotated[
        float,
        Flag(
            "--reservation",
            "how long machines are reserved for a need that is only partly satisfied",
            "SECONDS",
        ),
    ] = 900.0
    arrival_grace_seconds: float = 10.0
    growth: float = 0.1

    def __post_init__(self) -> None:
        """InvalidInput for a value with which nothing sensible could be decided."""
        for name in ("reclaim_cap_fraction", "reclaim_margin", "price_tolerance", "growth"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInput(name, getattr(self, name), "is not in 0..1")
        spans = {
            "reclaim_hold_seconds": self.reclaim_hold_seconds,
            "reacquire_seconds": self.reacquire_seconds,
            "voluntary_grace_seconds": self.voluntary_grace_seconds,
            "reservation_seconds": self.reservation_seconds,
            "arrival_grace_seconds": self.arrival_grace_seconds,
            **{f"idle_hold_seconds of {t.name}": s for t, s in self.idle_hold_seconds.items()},
        }
        for name, seconds in spans.items():
            if not seconds >= 0:
                raise InvalidInput(name, seconds, "is not a time >= 0")
