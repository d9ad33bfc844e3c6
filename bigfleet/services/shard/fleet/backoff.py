"""Exponential backoff after failures of offerings, machines and clusters.

Without it, an offering (instance type, zone and capacity type of a provider) that is sold out, or
whose machines do not boot, would be requested in every cycle, since it stays the cheapest; so would
a machine that cannot be configured, and a cluster whose machines never become Ready would keep
purchasing. The backoff doubles with each further failure and ends with a success.

A boot may fail for the cluster's sake: its credentials or network are broken. So an offering or
machine whose boots fail in one cluster only is in backoff for that cluster, until one fails in
another cluster as well. Once three different machines of a cluster have failed in a row, its
failures keep nothing from others; once five have, each further attempt is made with another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bigfleet.engine.snapshot import NONE, Flags, Flavour, Fleet, Ints, Rows
from bigfleet.model.labels import INSTANCE_TYPE_LABEL, ZONE_LABEL, capacity_type_label
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.retry_delays import RetryDelays
from bigfleet.observe import metrics
from bigfleet.services.shard.fleet.failures import BackOff, BootBackOff, Failure
from bigfleet.services.shard.records.views import Transition

_S = MachineState

# Single boots fail for other reasons: a spot machine is interrupted, a kubelet crashes.
_BOOTS_OF_A_CLUSTER = 5
_BOOTS_OF_AN_EXCUSED_CLUSTER = 3


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


class FailureBackOff:
    """Backoff of offerings, machines and clusters, driven by transitions. Times are Unix time."""

    def __init__(self) -> None:
        self._offerings = BackOff[Offering](RetryDelays(30.0, 1800.0))
        self._boots = BootBackOff[Offering](RetryDelays(30.0, 1800.0, free_failures=1))
        self._machines = BootBackOff[str](RetryDelays(60.0, 3600.0))
        of_clusters = RetryDelays(60.0, 900.0, free_failures=_BOOTS_OF_A_CLUSTER - 1)
        self._clusters = BackOff[str](of_clusters)

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
            is_on_trial, name = cluster in self.on_trial(), transition.machine_id
            # A machine that has failed there before is no further evidence against a cluster.
            if is_on_trial or not self._machines.has_failed(name, cluster):
                self._clusters.failed(cluster, error, now_seconds)
            excused = self._excused()
            self._machines.failed(name, cluster, error, now_seconds, excused)
            if not is_on_trial:
                self._boots.failed(
                    offering, cluster, error, now_seconds, dict.fromkeys(excused, 0.0)
                )

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
        backed_off, excused = _BackedOff(fleet), self._excused()
        offerings = [*self._failed_offerings(now_seconds)]
        metrics.shard_offerings_in_backoff.set(len({offering for offering, _ in offerings}))
        if offerings:
            not_idle = np.flatnonzero(fleet.state != _S.IDLE)
            found = [Offering.of(flavour) for flavour in fleet.flavours]
            for offering, failure in offerings:
                its = np.array([each == offering for each in found], np.bool_)
                backed_off.add(not_idle[its[fleet.flavour[not_idle]]], failure)
        machines = [*self._machines.backed_off(now_seconds, excused)]
        for row, (_, failure) in zip(places([m for m, _ in machines]), machines, strict=True):
            if row != NONE:
                backed_off.add(np.array([row]), failure)
        free = (fleet.state == _S.IDLE) | (fleet.state == _S.SPECULATIVE)
        for_all = backed_off.for_all & free
        for_all |= False if fleet.backed_off is None else fleet.backed_off
        return replace(
            fleet,
            backed_off=for_all,
            backed_off_for=backed_off.cluster,
            backed_off_for_too=backed_off.other,
        )

    def offerings(self, now_seconds: float) -> Mapping[Offering, Failure]:
        """Offerings of which no machine is purchased now, at least for the clusters concerned."""
        found: dict[Offering, Failure] = {}
        for offering, failure in self._failed_offerings(now_seconds):
            before = found.get(offering, failure).clusters
            clusters = failure.clusters | before if failure.clusters and before else frozenset()
            found[offering] = replace(failure, clusters=clusters)
        return found

    def _failed_offerings(self, now_seconds: float) -> Iterator[tuple[Offering, Failure]]:
        yield from self._boots.backed_off(now_seconds, dict.fromkeys(self._excused(), 0.0))
        yield from self._offerings.backed_off(now_seconds).items()

    def clusters(self, now_seconds: float) -> Collection[str]:
        """Clusters for which nothing is acquired now, since their machines do not become Ready."""
        return self._clusters.backed_off(now_seconds).keys()

    def on_trial(self) -> Collection[str]:
        """Clusters of which no machine has become Ready for several attempts in a row."""
        return self._clusters.repeated(_BOOTS_OF_A_CLUSTER).keys()

    def _excused(self) -> Mapping[str, float]:
        """The clusters that keep nothing from others which has failed there, with the seconds for
        which they do not try a machine again.
        """
        # Also between that cluster's attempts, which its own backoff makes rare. The next one is
        # with another machine: its cheapest may be broken itself.
        on_trial = self.on_trial()
        return {
            cluster: 1.5 * (failure.until_seconds - failure.last_seconds)
            if cluster in on_trial
            else 0.0
            for cluster, failure in self._clusters.repeated(_BOOTS_OF_AN_EXCUSED_CLUSTER).items()
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
    """The machines of a fleet that are in backoff: `for_all` [n], or for one `cluster` [n] or two,
    the second being the `other` [n].
    """

    def __init__(self, fleet: Fleet) -> None:
        self.for_all: Flags = np.zeros(len(fleet), np.bool_)
        self.cluster: Ints = np.full(len(fleet), NONE, np.int32)
        self.other: Ints = self.cluster.copy()
        self._numbers = {name: number for number, name in enumerate(fleet.clusters)}

    def add(self, rows: Rows, failure: Failure) -> None:
        """Record a failure of the machines in these `rows`, for one cluster or all."""
        if not failure.clusters:
            self.for_all[rows] = True
            return
        (cluster,) = failure.clusters
        number = self._numbers.get(cluster, NONE)
        if number == NONE:
            return
        first = np.isin(self.cluster[rows], (NONE, number))
        self.cluster[rows[first]] = number
        self.other[rows[~first]] = number


def descriptions(offerings: Mapping[Offering, Failure], now_seconds: float) -> Iterator[str]:
    """Describe for people each offering in backoff: number of failures, last error, next try."""
    for offering, failure in sorted(offerings.items()):
        capacity_type = capacity_type_label(offering.capacity_type.name)
        times = "once" if failure.number == 1 else f"{failure.number} times in a row"
        seller = f" of {offering.provider}" if offering.provider else ""
        yield (
            f"{offering.instance_type} in {offering.zone}, {capacity_type}{seller}: failed "
            f"{times}, last {now_seconds - failure.last_seconds:.0f} s ago ({failure.error}); "
            f"next try in {failure.until_seconds - now_seconds:.0f} s"
        )
