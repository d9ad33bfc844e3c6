"""Kinds of differences, their meaning and remedy; and which differences last. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What differs; the values are for programs."""

    SOURCE_UNAVAILABLE = "source-unavailable"
    RECORD_INVALID = "record-invalid"
    MACHINE_WITHOUT_NODE = "machine-without-node"
    NODE_WITHOUT_MACHINE = "node-without-machine"
    NODE_IN_ANOTHER_CLUSTER = "node-in-another-cluster"
    NODE_OF_FREE_MACHINE = "node-of-free-machine"
    MACHINE_NOT_LISTED = "machine-not-listed"
    MACHINE_STATE = "machine-state"
    MACHINE_UNKNOWN_TO_PROVIDER = "machine-unknown-to-provider"
    MACHINE_OF_TWO_PROVIDERS = "machine-of-two-providers"
    MACHINE_OF_TWO_SHARDS = "machine-of-two-shards"
    MACHINE_OF_UNKNOWN_CLUSTER = "machine-of-unknown-cluster"
    DOMAIN_OF_TWO_SHARDS = "domain-of-two-shards"
    DOMAIN_OF_ANOTHER_SHARD = "domain-of-another-shard"
    DOMAIN_WITHOUT_SHARD = "domain-without-shard"
    DOMAIN_NOT_TAKEN = "domain-not-taken"
    CLUSTER_NOT_SERVED = "cluster-not-served"
    CLUSTER_OF_TWO_SHARDS = "cluster-of-two-shards"
    NEEDS_DIFFER = "needs-differ"
    QUOTA_EXCEEDED = "quota-exceeded"
    REQUEST_WITHOUT_POD = "request-without-pod"
    UPCOMING_NODE_LEFT_BEHIND = "upcoming-node-left-behind"
    AVAILABLE_CAPACITY_LEFT_BEHIND = "available-capacity-left-behind"


class Explanation(NamedTuple):
    """What a difference means, and what to do about it."""

    meaning: str
    remedy: str


_K = Kind
EXPLANATIONS: Mapping[Kind, Explanation] = {
    _K.SOURCE_UNAVAILABLE: Explanation(
        "a part of the fleet did not answer, so what it says was not compared",
        "see the error; start it, or correct its address or the identity",
    ),
    _K.RECORD_INVALID: Explanation(
        "the provider lists a machine that no shard can use",
        "the provider must correct the record; `bigfleet conformance` checks providers",
    ),
    _K.MACHINE_WITHOUT_NODE: Explanation(
        "a machine is paid for and serves nobody",
        "if its Node was deleted by hand, drain the machine at the provider; "
        "`bigfleet why --machine` has its history",
    ),
    _K.NODE_WITHOUT_MACHINE: Explanation(
        "pods may be bound to a machine that does not exist",
        "delete the Node, unless the provider has lost its inventory",
    ),
    _K.NODE_IN_ANOTHER_CLUSTER: Explanation(
        "two clusters count one machine",
        "delete the Node in the cluster that the provider does not name",
    ),
    _K.NODE_OF_FREE_MACHINE: Explanation(
        "a cluster still counts a machine that may be given to another",
        "restart the cluster's operator, which asks the shard about each; else delete the Node",
    ),
    _K.MACHINE_NOT_LISTED: Explanation(
        "the shard that should decide about the machine does not, so nobody does",
        "`bigfleet why --machine` at that shard; a restarted shard lists its provider anew",
    ),
    _K.MACHINE_STATE: Explanation(
        "the shard decides on a state that the machine is not in",
        "see the shard's log for failed cycles; a restarted shard lists its provider anew",
    ),
    _K.MACHINE_UNKNOWN_TO_PROVIDER: Explanation(
        "the shard counts a machine that does not exist",
        "see the shard's log for failed cycles; a restarted shard lists its provider anew",
    ),
    _K.MACHINE_OF_TWO_PROVIDERS: Explanation(
        "nothing is ordered for either machine, since nobody knows which one is meant",
        "one of the providers must give its machine another id; ids are unique in a fleet",
    ),
    _K.MACHINE_OF_TWO_SHARDS: Explanation(
        "two shards may order one machine, and the provider accepts both",
        "stop the shard that the coordinator does not name, and start it with an empty state",
    ),
    _K.MACHINE_OF_UNKNOWN_CLUSTER: Explanation(
        "the machine is bound to a cluster that no part of the fleet knows",
        "start the cluster's operator, or `bigfleet fleet remove-cluster` if it is gone for good",
    ),
    _K.DOMAIN_OF_TWO_SHARDS: Explanation(
        "two shards decide about the free machines of one domain",
        "stop the shard that the coordinator does not name, and start it with an empty state",
    ),
    _K.DOMAIN_OF_ANOTHER_SHARD: Explanation(
        "a shard decides about free machines that the coordinator gives to another",
        "stop that shard, and start it with an empty state",
    ),
    _K.DOMAIN_WITHOUT_SHARD: Explanation(
        "no shard uses the free machines of the domain",
        "`bigfleet fleet status` shows whether shards report; `fleet assign-domain` assigns it",
    ),
    _K.DOMAIN_NOT_TAKEN: Explanation(
        "the shard that owns the domain leaves its free machines to others",
        "`fleet assign-domain` to another shard and back; see the shard's log",
    ),
    _K.CLUSTER_NOT_SERVED: Explanation(
        "no shard serves the cluster: its demand waits, and its machines are kept",
        "see the operator's log; `bigfleet fleet remove-cluster` if the cluster is gone for good",
    ),
    _K.CLUSTER_OF_TWO_SHARDS: Explanation(
        "two shards buy machines for the same demand",
        "restart the cluster's operator; stop the shard that the coordinator does not name",
    ),
    _K.NEEDS_DIFFER: Explanation(
        "the shard serves another demand than the cluster has",
        "see the operator's log for roll-ups that are rejected or held back; "
        "`bigfleet why --need` shows needs that are left out",
    ),
    _K.QUOTA_EXCEEDED: Explanation(
        "a shard holds more purchased machines than it may",
        "after a quota was lowered, wait for the machines to be released; else see the shard's log",
    ),
    _K.REQUEST_WITHOUT_POD: Explanation(
        "capacity is requested for a Pod that is gone or has finished",
        "check that the pod controller and the cluster's garbage collector run; delete the request",
    ),
    _K.UPCOMING_NODE_LEFT_BEHIND: Explanation(
        "a machine is announced that is not coming",
        "restart the cluster's operator, which asks the shard about each; else delete the object",
    ),
    _K.AVAILABLE_CAPACITY_LEFT_BEHIND: Explanation(
        "capacity is announced for a demand that the cluster no longer has",
        "restart the cluster's operator; a minute later it deletes hints that are not repeated",
    ),
}


@dataclass(frozen=True, order=True)
class Difference:
    """`says` has what each source states about `object`. `since` is the creation of the object
    in Unix time, 0 if it is unknown.
    """

    kind_value: str
    object: str
    says: tuple[tuple[str, str], ...]
    since: float = 0.0

    @property
    def kind(self) -> Kind:
        """The kind."""
        return Kind(self.kind_value)

    @property
    def explanation(self) -> Explanation:
        """Its meaning and remedy."""
        return EXPLANATIONS[self.kind]


def difference(kind: Kind, name: str, since: float = 0.0, **says: str) -> Difference:
    """A difference about the object `name`; `says` has each source's statement."""
    return Difference(kind.value, name, tuple(says.items()), since)


@dataclass(frozen=True)
class Findings:
    """The differences of two observations: `lasting` ones were there both times and said the same;
    the others are on their way, such as a machine that is just joining.
    """

    lasting: Sequence[Difference]
    in_transit: Sequence[Difference]


def settle(first: Sequence[Difference], second: Sequence[Difference]) -> Findings:
    """Tell what lasts from what moves."""
    before = set(map(_statement, first))
    lasting = [each for each in second if _statement(each) in before]
    kept = set(map(_statement, lasting))
    moving = {each for each in (*first, *second) if _statement(each) not in kept}
    return Findings(sorted(lasting), sorted(moving))


def _statement(each: Difference) -> Difference:
    """What must be equal both times. Errors of one cause may differ in their text."""
    return replace(each, says=()) if each.kind is Kind.SOURCE_UNAVAILABLE else each
