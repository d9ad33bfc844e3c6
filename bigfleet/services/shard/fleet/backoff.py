"""Exponential backoff after failures of offerings, machines and clusters.

Without it, an offering (instance type, zone and capacity type of a provider) that is sold out, or
whose machines do not boot, would be requested in every cycle, since it stays the cheapest; so would
a machine that cannot be configured, and a cluster whose machines never become Ready would keep
purchasing. The backoff doubles with each further failure and ends with a success.

A boot may fail for the cluster's sake: its credentials or network are broken. So an offering or
machine whose boots fail in one cluster only is in backoff for that cluster, until one fails in
another cluster as well. Once none of a cluster's machines has become Ready for several attempts in
a row, its failures are no evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from bigfleet.engine.snapshot import NONE, Flags, Flavour, Fleet, Ints, Rows
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.observe import metrics
from bigfleet.services.shard.records.machine_class import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.services.shard.records.views import Transition

_Key = TypeVar("_Key")
_S = MachineState

# Single boots fail for other reasons: a spot machine is interrupted, a kubelet crashes.
_BOOTS_OF_A_CLUSTER = 5
_FORGET_SECONDS = 3600.0


class Offering(NamedTuple):
    """The unit of capacity that a seller runs out of."""

    instance_type: str
    zone: str
    capacity_type: CapacityType
    provider: str = ""

    @classmethod
    def of(cls, flavour: Flavour) -> Offering:
        """The offering of this flavour."""
        labels = flavour.labels
        return cls(
            labels.get(INSTANCE_TYPE_LABEL, ""),
            labels.get(ZONE_LABEL, ""),
            flavour.capacity_type,
            flavour.provider,
        )


@dataclass(frozen=True)
class Failure:
    """`number` failures in a row, the last one with its time and error; no retry before
    `until_seconds`. `clusters` are those in which it happened, empty if no cluster was involved.
    """

    number: int
    last_seconds: float
    until_seconds: float
    error: str
    clusters: frozenset[str] = frozenset()

    def concerns(self, cluster: str) -> bool:
        """Whether the cluster is in backoff: the only one in which it failed, or any."""
        return len(self.clusters) != 1 or cluster in self.clusters


class BackOff(Generic[_Key]):
    """Backoff between `min_seconds` and `max_seconds`, doubled by each failure; the first
    `free_failures` in a row cause none. Failures during a backoff do not count: their attempts
    began before it.
    """

    def __init__(self, min_seconds: float, max_seconds: float, free_failures: int = 0) -> None:
        self._min_seconds, self._max_seconds, self._free_failures = (
            min_seconds,
            max_seconds,
            free_failures,
        )
        self._failures: dict[_Key, Failure] = {}

    def failed(self, key: _Key, error: str, now_seconds: float, cluster: str = "") -> None:
        """Record a failure of `key`, in `cluster` if one was involved."""
        before = self._failures.get(key)
        clusters = (before.clusters if before else frozenset()) | ({cluster} - {""})
        if before is not None and now_seconds < before.until_seconds:
            self._failures[key] = replace(before, clusters=clusters)
            return
        number = before.number + 1 if before else 1
        backoff_seconds = 0.0
        if number > self._free_failures:
            doublings = min(number - self._free_failures - 1, 30)
            backoff_seconds = min(self._min_seconds * 2.0**doublings, self._max_seconds)
        self._failures[key] = Failure(
            number, now_seconds, now_seconds + backoff_seconds, error, clusters
        )

    def succeeded(self, key: _Key, cluster: str = "") -> None:
        """Reset the backoff of `key`, except for other clusters than the one in which it succeeded,
        if one was involved.
        """
        failure = self._failures.pop(key, None)
        if failure is not None and cluster and (others := failure.clusters - {cluster}):
            self._failures[key] = replace(failure, clusters=others)

    def has_failed(self, key: _Key, cluster: str) -> bool:
        """Whether `key` has failed in the cluster since its last success there."""
        failure = self._failures.get(key)
        return failure is not None and cluster in failure.clusters

    def repeated(self) -> Collection[_Key]:
        """Keys with more failures in a row than are free, in backoff or not."""
        return {key for key, f in self._failures.items() if f.number > self._free_failures}

    def backed_off(self, now_seconds: float) -> Mapping[_Key, Failure]:
        """Keys in backoff. Failures long past are dropped."""
        for key, failure in list(self._failures.items()):
            if now_seconds > failure.until_seconds + _FORGET_SECONDS:
                del self._failures[key]
        return {k: f for k, f in self._failures.items() if now_seconds < f.until_seconds}


class FailureBackOff:
    """Backoff of offerings, machines and clusters, driven by transitions. Times are Unix time."""

    def __init__(self) -> None:
        self._offerings = BackOff[Offering](30.0, 1800.0)
        self._boots = BackOff[Offering](30.0, 1800.0, free_failures=1)
        self._machines = BackOff[str](60.0, 3600.0)
        self._clusters = BackOff[str](60.0, 900.0, free_failures=_BOOTS_OF_A_CLUSTER - 1)

    def follow(self, transition: Transition, flavour: Flavour, now_seconds: float) -> None:
        """Record a failure or success from a machine's transition."""
        offering, error = Offering.of(flavour), transition.last_error or "for an unknown reason"
        before, after = transition.before, transition.after
        if before is _S.CREATING and after in (_S.FAILED, _S.SPECULATIVE):
            self._offerings.failed(offering, error, now_seconds)
        elif before is _S.CREATING and after is _S.IDLE:
            self._offerings.succeeded(offering)
        elif before is _S.CONFIGURING and after is _S.CONFIGURED:
            self._boots.succeeded(offering, transition.cluster)
            self._machines.succeeded(transition.machine_id, transition.cluster)
            self._clusters.succeeded(transition.cluster)
        elif cluster := _failed_boot_in(transition):
            is_on_trial = cluster in self.on_trial()
            # A machine that has failed there before is no further evidence against a cluster.
            if is_on_trial or not self._machines.has_failed(transition.machine_id, cluster):
                self._clusters.failed(cluster, error, now_seconds)
            if not is_on_trial:
                self._boots.failed(offering, error, now_seconds, cluster)
                self._machines.failed(transition.machine_id, error, now_seconds, cluster)

    def refused(self, cluster: str, error: str, now_seconds: float) -> None:
        """Record that the operator could not provide bootstrap data."""
        self._clusters.failed(cluster, error, now_seconds)

    def forget(self, cluster: str) -> None:
        """Drop a removed cluster."""
        self._clusters.succeeded(cluster)

    def apply_to(
        self, fleet: Fleet, places: Callable[[Sequence[str]], Ints], now_seconds: float
    ) -> Fleet:
        """The fleet with the machines not to use now: those that it says itself, those of offerings
        in backoff except idle ones, and those in backoff themselves, which would only be purchased
        to stay idle. Machines in service are in backoff for a cluster that must not preempt them,
        never for all. `places` finds the rows of machines by their ids.
        """
        backed_off = _BackedOff(fleet)
        offerings = self.offerings(now_seconds)
        metrics.shard_offerings_in_backoff.set(len(offerings))
        if offerings:
            not_idle = np.flatnonzero(fleet.state != _S.IDLE)
            found = [Offering.of(flavour) for flavour in fleet.flavours]
            for offering, failure in offerings.items():
                its = np.array([each == offering for each in found], np.bool_)
                backed_off.add(not_idle[its[fleet.flavour[not_idle]]], failure)
        machines = self._blamed(self._machines, now_seconds)
        for row, failure in zip(places([*machines]), machines.values(), strict=True):
            if row != NONE:
                backed_off.add(np.array([row]), failure)
        free = (fleet.state == _S.IDLE) | (fleet.state == _S.SPECULATIVE)
        for_all = backed_off.for_all & free
        for_all |= False if fleet.backed_off is None else fleet.backed_off
        return replace(fleet, backed_off=for_all, backed_off_for=backed_off.cluster)

    def offerings(self, now_seconds: float) -> Mapping[Offering, Failure]:
        """Offerings of which no machine is purchased now, at least for the clusters concerned."""
        boots = self._blamed(self._boots, now_seconds)
        return {**boots, **self._offerings.backed_off(now_seconds)}

    def clusters(self, now_seconds: float) -> Collection[str]:
        """Clusters for which nothing is acquired now, since their machines do not become Ready."""
        return self._clusters.backed_off(now_seconds).keys()

    def on_trial(self) -> Collection[str]:
        """Clusters of which no machine has become Ready for several attempts in a row."""
        return self._clusters.repeated()

    def _blamed(self, back_offs: BackOff[_Key], now_seconds: float) -> Mapping[_Key, Failure]:
        """Keys in backoff. Clusters where no machine becomes Ready do not count, unless there is no
        other.
        """
        # Also between that cluster's attempts, which its own backoff makes rare.
        excused = set(self.on_trial())
        return {
            key: replace(failure, clusters=(failure.clusters - excused) or failure.clusters)
            for key, failure in back_offs.backed_off(now_seconds).items()
        }


def _failed_boot_in(transition: Transition) -> str:
    """The cluster in which a machine did not become Ready; "" if the transition is another one.

    A boot whose order was not answered may be seen only once it has failed.
    """
    before, after = transition.before, transition.after
    if before is _S.CONFIGURING and after in (_S.FAILED, _S.IDLE):
        return transition.former_cluster
    return transition.cluster if (before, after) == (_S.IDLE, _S.FAILED) else ""


class _BackedOff:
    """The machines of a fleet that are in backoff: `for_all` [n], or for one `cluster` [n]."""

    def __init__(self, fleet: Fleet) -> None:
        self.for_all: Flags = np.zeros(len(fleet), np.bool_)
        self.cluster: Ints = np.full(len(fleet), NONE, np.int32)
        self._numbers = {name: number for number, name in enumerate(fleet.clusters)}

    def add(self, rows: Rows, failure: Failure) -> None:
        """Record a failure of the machines in these `rows`."""
        if len(failure.clusters) != 1:
            self.for_all[rows] = True
            return
        (cluster,) = failure.clusters
        number = self._numbers.get(cluster, NONE)
        before = self.cluster[rows]
        # Its offering failed in one cluster, and the machine itself in another one.
        self.for_all[rows[(before != NONE) & (before != number)]] = True
        self.cluster[rows] = number


def descriptions(offerings: Mapping[Offering, Failure], now_seconds: float) -> Iterator[str]:
    """Describe for people each offering in backoff: number of failures, last error, next try."""
    for offering, failure in sorted(offerings.items()):
        capacity_type = offering.capacity_type.name.lower().replace("_", "-")
        times = "once" if failure.number == 1 else f"{failure.number} times in a row"
        seller = f" of {offering.provider}" if offering.provider else ""
        yield (
            f"{offering.instance_type} in {offering.zone}, {capacity_type}{seller}: failed "
            f"{times}, last {now_seconds - failure.last_seconds:.0f} s ago ({failure.error}); "
            f"next try in {failure.until_seconds - now_seconds:.0f} s"
        )
