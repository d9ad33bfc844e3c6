"""What each source said of the fleet at about one moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bigfleet.model.domain import BY_RACK, BY_ZONE, Domain
from bigfleet.model.labels import RACK_LABEL
from bigfleet.model.machine import Machine, MachineState
from bigfleet.model.need import NeedKey

#: A provider's region, as in a quota.
Region = tuple[str, str]


@dataclass(frozen=True)
class ProviderView:
    """A provider's machines by id; `name` is "" while none of them has a host. `rejected` has the
    errors of records that are invalid.
    """

    name: str
    machines: Mapping[str, Machine]
    rejected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecidedMachine:
    """A machine as a shard's last decision saw it: in the state that orders under way lead to."""

    state: MachineState
    cluster: str
    domain: Domain


@dataclass(frozen=True)
class InspectedMachine:
    """A machine as a shard sees it now. `not_owned` is why it leaves the machine to others, "" if
    it does not; `order` is the operation under way, "" for none.
    """

    state: MachineState
    cluster: str
    order: str = ""
    not_owned: str = ""


@dataclass(frozen=True)
class ShardView:
    """The inputs of a shard's last decision.

    `machines` are those that it decides about, `pods` those of each need as the operators reported
    it. Clusters in `reported` have sent a roll-up, those in `connected` have a session.
    """

    id: str
    machines: Mapping[str, DecidedMachine]
    pods: Mapping[NeedKey, int]
    reported: Collection[str]
    connected: Collection[str]


@dataclass(frozen=True)
class DomainRow:
    """A domain's shard according to the coordinator; `state` is "owned" unless it is moving."""

    shard: str
    state: str = "owned"


@dataclass(frozen=True)
class CoordinatorView:
    """The coordinator's lists. `shards` has the address of each shard, `quotas` the machines that
    each shard may hold by provider and region. Clusters in `removing` are being removed.
    """

    shards: Mapping[str, str]
    domains: Mapping[Domain, DomainRow]
    clusters: Mapping[str, str]
    quotas: Mapping[Region, Mapping[str, int]] = field(default_factory=dict)
    removing: Collection[str] = ()

    @property
    def domain_keys(self) -> Sequence[str]:
        """The labels whose values are the domains, as their list shows."""
        by_rack = not self.domains or any(domain.key == RACK_LABEL for domain in self.domains)
        return BY_RACK if by_rack else BY_ZONE


@dataclass(frozen=True)
class SeenNode:
    """A Node with BigFleet's label. `created` is Unix time, 0 if unknown, here and below."""

    name: str
    machine: str
    created: float = 0.0


@dataclass(frozen=True)
class SeenRequest:
    """A CapacityRequest. `need` is its (profile fingerprint, group), None if it is invalid or being
    deleted; `pod` is the UID of the Pod that owns it, "" for none; `members` is the size of its
    gang, 0 if unknown.
    """

    name: str
    need: tuple[str, str] | None
    pod: str = ""
    members: int = 0
    created: float = 0.0


@dataclass(frozen=True)
class ClusterView:
    """BigFleet's objects in a cluster. `pods` are the UIDs of Pods that have not finished;
    `upcoming` and `available` have the creation times of UpcomingNodes and AvailableCapacities.
    """

    nodes: Sequence[SeenNode] = ()
    requests: Sequence[SeenRequest] = ()
    pods: Collection[str] = ()
    upcoming: Mapping[str, float] = field(default_factory=dict)
    available: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """What all sources said. `at` is Unix time. Without a `coordinator`, the fleet has one shard.

    `unavailable` has the error of each source that did not answer, by its name; a source that is
    there answered. `inspected` are the machines that were looked at more closely, by shard and
    machine; None if the shard does not know the machine.
    """

    at: float
    providers: Sequence[ProviderView]
    shards: Mapping[str, ShardView]
    clusters: Mapping[str, ClusterView] = field(default_factory=dict)
    coordinator: CoordinatorView | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    inspected: Mapping[tuple[str, str], InspectedMachine | None] = field(default_factory=dict)

    @property
    def knows_all_machines(self) -> bool:
        """Whether every provider answered: only then is a machine that none lists gone."""
        return not any(source.startswith(PROVIDER) for source in self.unavailable)

    @property
    def knows_all_shards(self) -> bool:
        """Whether every shard answered."""
        return not any(source.startswith(SHARD) for source in self.unavailable)


#: The names of sources begin so.
PROVIDER, SHARD, CLUSTER, COORDINATOR = "provider ", "shard ", "cluster ", "coordinator"
