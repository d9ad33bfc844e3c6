"""What the suite asks of a driver, so that any autoscaler can be held to the same scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bigfleet.kube.client import KubeClient
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.local import LocalSubstrate
from tests.scenarios.history import History, ObservedPod
from tests.scenarios.judging import Message, MessagePatterns
from tests.scenarios.records import Expect

WHOLE = frozenset(Expect.__struct_fields__)


@dataclass(frozen=True)
class SystemContext:
    """One cluster for one system. `substrate` starts what belongs to it, `scratch` is a folder for
    its files, `client` is a cluster administrator.
    """

    substrate: LocalSubstrate
    cluster: Cluster
    client: KubeClient
    scratch: Path


class System(Protocol):
    """One autoscaler, which serves one cluster from `start` on; the substrate ends it.

    `message_patterns` says how it calls what an autoscaler may have to say of a pod.
    `internal_kinds` are kinds of objects that it keeps for itself in the cluster whatever the
    demand. `left_out` are scenarios that it is not held to, each with the reason, for everybody to
    read. `judged` are the parts of an expectation that it is held to, all of them for an
    autoscaler.
    """

    name: str
    message_patterns: MessagePatterns
    internal_kinds: frozenset[str]
    left_out: Mapping[str, str]
    judged: frozenset[str]

    async def install(self, client: KubeClient) -> None:
        """Put its kinds of objects into a new cluster, whose controllers start after that."""
        ...

    async def start(self, context: SystemContext) -> None:
        """Return once it works, with the instance types of `scenarios.fleet`. SubstrateError."""
        ...

    async def conditions(self, pods: Sequence[ObservedPod]) -> Mapping[str, Sequence[Message]]:
        """What it says of the pods in conditions, its own objects' among them, by the pod's UID."""
        ...

    async def held(self) -> list[str]:
        """Machines that it holds now for pods or had to pay for, one phrase each; none when there
        are no pods and never were any.
        """
        ...

    async def explain(self, seen: History) -> str:
        """What it says about itself, for people who look into a failure."""
        ...
