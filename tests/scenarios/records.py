"""What stands in a scenario's file: objects, steps as with kubectl, and what is expected.

Nothing here knows any autoscaler. Pods are named by labels and Nodes by the pods that run on them,
because nobody can know in advance what either will be called.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from loaddriver.profile.decoding import ConfigStruct
from tests.scenarios.timing import DEFAULT_TIMEOUT_SECONDS

Sentence = Annotated[str, msgspec.Meta(min_length=20)]
Count = Annotated[int, msgspec.Meta(ge=0)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=180)]
# `key=value` with commas between, all of which must hold.
Selector = Annotated[str, msgspec.Meta(pattern=r"^[^=, ]+=[^=, ]*(,[^=, ]+=[^=, ]*)*$")]
# `Deployment/web`, or `Deployment/team-a/web` in a namespace other than the scenario's own.
ObjectName = Annotated[str, msgspec.Meta(pattern=r"^[A-Z][A-Za-z]+/[-a-z0-9.]+(/[-a-z0-9.]+)?$")]
NodeName = Annotated[str, msgspec.Meta(pattern=r"^[a-z][-a-z0-9]*$")]
TaintText = Annotated[
    str, msgspec.Meta(pattern=r"^[^=: ]+(=[^=: ]*)?:(NoSchedule|PreferNoSchedule|NoExecute)$")
]
Topology = Literal["hostname", "zone", "rack"]
TOPOLOGY_KEYS: dict[str, str] = {
    "hostname": "kubernetes.io/hostname",
    "zone": "topology.kubernetes.io/zone",
    "rack": "topology.bigfleet/rack",
}
# What an autoscaler may have to say of a pod. Each system calls them by names of its own.
ReasonName = Literal["nothing-fits", "nothing-left"]


class Scale(ConfigStruct, frozen=True):
    """kubectl scale."""

    object: ObjectName
    replicas: Count


class Edit(ConfigStruct, frozen=True):
    """kubectl patch: a strategic merge patch."""

    object: ObjectName
    patch: dict[str, Any]


class Resize(ConfigStruct, frozen=True):
    """kubectl patch --subresource resize, of the first container of each of the pods."""

    pods: Selector
    requests: dict[str, str]


class SomePods(ConfigStruct, frozen=True):
    """So many of the pods that run, the first by name; all without a `count`."""

    pods: Selector
    count: PositiveInt | None = None


class OneNode(ConfigStruct, frozen=True):
    """The Node on which most of the pods run (`running`), or fewest but one (`fewest`); the first
    by name of several. With `named` it can be meant again by that name alone.
    """

    running: Selector | None = None
    fewest: Selector | None = None
    named: NodeName | None = None


class Taint(ConfigStruct, frozen=True):
    """kubectl taint node."""

    node: OneNode
    taint: TaintText


class Bound(ConfigStruct, frozen=True):
    """Exactly `count` pods, all bound to Nodes that are there, and none of them waits."""

    pods: Selector
    count: PositiveInt
    within: Seconds = DEFAULT_TIMEOUT_SECONDS


class Finished(ConfigStruct, frozen=True):
    """`count` pods have ended well."""

    pods: Selector
    count: PositiveInt
    within: Seconds = DEFAULT_TIMEOUT_SECONDS


class Pending(ConfigStruct, frozen=True):
    """Exactly `count` pods wait without a Node; how long is what `quiet` says."""

    pods: Selector
    count: PositiveInt
    within: Seconds = DEFAULT_TIMEOUT_SECONDS


class NoPods(ConfigStruct, frozen=True):
    """There is none of these pods any more."""

    pods: Selector
    within: Seconds = DEFAULT_TIMEOUT_SECONDS


class Machines(ConfigStruct, frozen=True):
    """How many Nodes there are, of those with the labels `where`.

    `more` counts from the number at the end of the expectation before; `peak` is the most at any
    moment since the step before.
    """

    exactly: Count | None = None
    at_most: Count | None = None
    at_least: PositiveInt | None = None
    more: int | None = None
    peak: Count | None = None
    peak_more: int | None = None
    where: Selector | None = None
    within: Seconds = DEFAULT_TIMEOUT_SECONDS


class Reports(ConfigStruct, frozen=True):
    """The autoscaler says so of each of the pods that wait, in an Event and, if it has one, in a
    condition; all of `mentions` are part of what it says.
    """

    pods: Selector
    reason_name: ReasonName
    mentions: tuple[str, ...] = ()
    within: Seconds = DEFAULT_TIMEOUT_SECONDS


class Apart(ConfigStruct, frozen=True):
    """No two of the bound pods share a domain."""

    pods: Selector
    by: Topology


class Together(ConfigStruct, frozen=True):
    """All bound pods share one domain; those of `beside`, too."""

    pods: Selector
    by: Topology
    beside: Selector | None = None


class Spread(ConfigStruct, frozen=True):
    """Bound pods in at least `domains` domains, of which the fullest has at most `max_skew` more
    than the emptiest.
    """

    pods: Selector
    by: Topology
    max_skew: PositiveInt
    domains: Annotated[int, msgspec.Meta(ge=2)]


class Where(ConfigStruct, frozen=True):
    """All bound pods run on Nodes with these labels; with `never`, none does."""

    pods: Selector
    labels: Selector
    never: bool = False


class Evicted(ConfigStruct, frozen=True):
    """At most so many of the pods were evicted since the scenario began, or since the steps before
    if `since_step`; by whomever, but for what the steps do by hand.
    """

    at_most: Count
    pods: Selector | None = None
    since_step: bool = False


class Nodes(ConfigStruct, frozen=True):
    """What became of Nodes that steps have named."""

    gone: tuple[NodeName, ...] = ()
    there: tuple[NodeName, ...] = ()
    within: Seconds = DEFAULT_TIMEOUT_SECONDS


class Expect(ConfigStruct, frozen=True):
    """All of it comes to hold, each within its own time; then for `quiet` seconds no Node comes,
    goes or is cordoned and no pod is evicted; and then all of it still holds. `one_per_node` are
    pods of DaemonSets, and `rolled_out` means what kubectl rollout status waits for.

    With `settle` the quiet may begin so much later: what was ordered for the pods of a moment, such
    as those of a roll-out, may still come and go again.
    """

    bound: tuple[Bound, ...] = ()
    finished: tuple[Finished, ...] = ()
    pending: tuple[Pending, ...] = ()
    no_pods: tuple[NoPods, ...] = ()
    machines: tuple[Machines, ...] = ()
    reports: tuple[Reports, ...] = ()
    one_per_node: tuple[Selector, ...] = ()
    rolled_out: tuple[ObjectName, ...] = ()
    apart: tuple[Apart, ...] = ()
    together: tuple[Together, ...] = ()
    spread: tuple[Spread, ...] = ()
    where: tuple[Where, ...] = ()
    evicted: tuple[Evicted, ...] = ()
    nodes: Nodes | None = None
    quiet: Seconds | None = None
    settle: Seconds | None = None


class Step(ConfigStruct, frozen=True):
    """One thing that somebody does, or expects. Exactly one key."""

    apply: tuple[dict[str, Any], ...] | None = None
    scale: Scale | None = None
    edit: Edit | None = None
    resize: Resize | None = None
    delete: tuple[ObjectName, ...] | None = None
    delete_pods: SomePods | None = None
    delete_node: OneNode | None = None
    finish: SomePods | None = None
    roll_out: ObjectName | None = None
    cordon: OneNode | None = None
    uncordon: OneNode | None = None
    drain: OneNode | None = None
    taint: Taint | None = None
    name_node: OneNode | None = None
    expect: Expect | None = None

    @property
    def verbs(self) -> list[str]:
        """The keys that are given, as in Python."""
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]


class Scenario(ConfigStruct, frozen=True):
    """One file. `smoke` makes it one of the few that `make test` plays."""

    rule: Sentence
    steps: tuple[Step, ...]
    smoke: bool = False
