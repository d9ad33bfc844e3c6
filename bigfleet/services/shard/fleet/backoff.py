"""What has failed lately, so that it is not tried again at once.

An offering (instance type, zone and capacity type) that is sold out, or whose machines do not boot,
would otherwise be asked for in every cycle, since it stays the cheapest; so would a machine
that cannot be configured, and a cluster whose machines never become Ready would go on buying. Each
rests after a failure, for twice as long after each further one, until it succeeds.

What failed in one cluster only may be as good as any: as long as that cluster rests itself, others
may have it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from bigfleet.engine.snapshot import Flags, Flavour, Fleet
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.observe import metrics
from bigfleet.services.shard.records.machine_class import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.services.shard.records.views import Transition

_Key = TypeVar("_Key")
_S = MachineState

# A boot may fail by itself now and then: a spot machine is lost, a kubelet crashes.
_BOOTS_OF_A_CLUSTER = 5
_FORGET_SECONDS = 3600.0


class Offering(NamedTuple):
    """What is sold out as a whole."""

    instance_type: str
    zone: str
    capacity_type: CapacityType

    @classmethod
    def of(cls, flavour: Flavour) -> Offering:
        """The offering that machines of this flavour are."""
        labels = flavour.labels
        return cls(
            labels.get(INSTANCE_TYPE_LABEL, ""), labels.get(ZONE_LABEL, ""), flavour.capacity_type
        )


@dataclass(frozen=True)
class Failure:
    """So many in a row, the last of them when and why; not tried again before `until_seconds`.
    `clusters` are those that it happened in, none where no cluster had a part in it.
    """

    number: int
    last_seconds: float
    until_seconds: float
    error: str
    clusters: frozenset[str] = frozenset()


class BackOff(Generic[_Key]):
    """Rests that double, between `min_seconds` and `max_seconds`; the first `free_failures`
    failures in a row cost none. Of failures during one rest only the first counts: they began
    before it.
    """

    def __init__(self, min_seconds: float, max_seconds: float, free_failures: int = 0) -> None:
        self._min_seconds, self._max_seconds, self._free_failures = (
            min_seconds,
            max_seconds,
            free_failures,
        )
        self._failures: dict[_Key, Failure] = {}

    def failed(self, key: _Key, error: str, now_seconds: float, cluster: str = "") -> None:
        """One more failure of `key`, in `cluster` if that had a part in it."""
        before = self._failures.get(key)
        clusters = (before.clusters if before else frozenset()) | ({cluster} - {""})
        if before is not None and now_seconds < before.until_seconds:
            self._failures[key] = replace(before, clusters=clusters)
            return
        number = before.number + 1 if before else 1
        rest_seconds = 0.0
        if number > self._free_failures:
            doublings = min(number - self._free_failures - 1, 30)
            rest_seconds = min(self._min_seconds * 2.0**doublings, self._max_seconds)
        self._failures[key] = Failure(
            number, now_seconds, now_seconds + rest_seconds, error, clusters
        )

    def succeeded(self, key: _Key) -> None:
        """What failed before is forgotten."""
        self._failures.pop(key, None)

    def backed_off(self, now_seconds: float) -> Mapping[_Key, Failure]:
        """What is not to be tried now. What last failed long ago is forgotten."""
        for key, failure in list(self._failures.items()):
            if now_seconds > failure.until_seconds + _FORGET_SECONDS:
                del self._failures[key]
        return {k: f for k, f in self._failures.items() if now_seconds < f.until_seconds}


class FailureBackOff:
    """Follows all machines' transitions. Times are Unix seconds."""

    def __init__(self) -> None:
        self._offerings = BackOff[Offering](30.0, 1800.0)
        self._boots = BackOff[Offering](30.0, 1800.0, free_failures=1)
        self._machines = BackOff[str](60.0, 3600.0)
        self._clusters = BackOff[str](60.0, 900.0, free_failures=_BOOTS_OF_A_CLUSTER - 1)

    def follow(self, transition: Transition, flavour: Flavour, now_seconds: float) -> None:
        """Take note of what became of a machine."""
        offering, error = Offering.of(flavour), transition.last_error or "for an unknown reason"
        before, after = transition.before, transition.after
        if before is _S.CREATING and after in (_S.FAILED, _S.SPECULATIVE):
            self._offerings.failed(offering, error, now_seconds)
        elif before is _S.CREATING and after is _S.IDLE:
            self._offerings.succeeded(offering)
        elif before is _S.CONFIGURING and after is _S.CONFIGURED:
            self._boots.succeeded(offering)
            self._machines.succeeded(transition.machine_id)
            self._clusters.succeeded(transition.cluster)
        elif before is _S.CONFIGURING and after in (_S.FAILED, _S.IDLE):
            cluster = transition.former_cluster
            self._boots.failed(offering, error, now_seconds, cluster)
            self._machines.failed(transition.machine_id, error, now_seconds, cluster)
            self._clusters.failed(cluster, error, now_seconds)

    def refused(self, cluster: str, error: str, now_seconds: float) -> None:
        """The operator could not give a machine what it needs to join."""
        self._clusters.failed(cluster, error, now_seconds)

    def forget(self, cluster: str) -> None:
        """The cluster is gone; one of the same name begins anew."""
        self._clusters.succeeded(cluster)

    def backed_off(
        self, fleet: Fleet, ids: Callable[[], Sequence[bytes]], now_seconds: float
    ) -> Flags:
        """The machines that nobody should be given now: speculative ones of offerings that rest,
        and those that rest themselves, which would be bought only to lie idle until then. `ids`
        names the fleet's rows.
        """
        flags = np.zeros(len(fleet), np.bool_)
        offerings = self.offerings(now_seconds)
        metrics.shard_offerings_in_backoff.set(len(offerings))
        if offerings:
            back_offs = np.array([Offering.of(f) in offerings for f in fleet.flavours], np.bool_)
            flags |= back_offs[fleet.flavour] & (fleet.state == _S.SPECULATIVE)
        machines = {machine.encode() for machine in self._blamed(self._machines, now_seconds)}
        if machines:
            free = (fleet.state == _S.IDLE) | (fleet.state == _S.SPECULATIVE)
            names = ids()
            backed_off = [r for r in np.flatnonzero(free).tolist() if bytes(names[r]) in machines]
            flags[backed_off] = True
        return flags

    def offerings(self, now_seconds: float) -> Mapping[Offering, Failure]:
        """Those of which no machine is bought now."""
        boots = self._blamed(self._boots, now_seconds)
        return {**boots, **self._offerings.backed_off(now_seconds)}

    def clusters(self, now_seconds: float) -> Collection[str]:
        """Those for which nothing is acquired now, since their machines do not become Ready."""
        return self._clusters.backed_off(now_seconds).keys()

    def _blamed(self, back_offs: BackOff[_Key], now_seconds: float) -> Mapping[_Key, Failure]:
        """What rests, but for what failed only in clusters that rest themselves."""
        excused = set(self.clusters(now_seconds))
        found = back_offs.backed_off(now_seconds).items()
        return {key: f for key, f in found if not f.clusters or f.clusters - excused}


def descriptions(offerings: Mapping[Offering, Failure], now_seconds: float) -> Iterator[str]:
    """For people: what is not bought now, since when, why, and until when."""
    for offering, failure in sorted(offerings.items()):
        capacity_type = offering.capacity_type.name.lower().replace("_", "-")
        times = "once" if failure.number == 1 else f"{failure.number} times in a row"
        yield (
            f"{offering.instance_type} in {offering.zone}, {capacity_type}: failed {times}, last "
            f"{now_seconds - failure.last_seconds:.0f} s ago ({failure.error}); "
            f"tried again in {failure.until_seconds - now_seconds:.0f} s"
        )
