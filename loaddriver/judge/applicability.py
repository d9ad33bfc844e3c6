"""What a summary says about the system under test: gates and hops that do not apply are named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from loaddriver.judge.gates import GateSpec
from loaddriver.record.provenance import ProviderUsed

# Keys of the summary that a run without any autoscaler does not have.
_BARE_LACKS = frozenset(
    {
        "machines",
        "components",
        "hopsSeconds",
        "nodes",
        "placement",
        "bare",
        "requests",
        "federation",
        "stability",
        "cost",
        "prices",
        "interruptions",
        "resources",
    }
)
# What an autoscaler decides; without one, all machines are there from the start.
_OF_AN_AUTOSCALER = frozenset({"cost", "nodes", "placement", "stability"})
# What is BigFleet's own, or known from its shards' journals alone.
_ONLY_BIGFLEET_HAS = (
    "machines.",
    "components.",
    "hopsSeconds.",
    "requests.",
    "federation.",
    "resources.",
    "prices.",
    "interruptions.",
    "audit.differences",
    "stability.reclaimedWhileGrowing",
    "stability.bought",
    "stability.released",
    "stability.additionalRequests",
    "stability.unschedulableDespiteSupply",
)
# Who evicted or deleted a pod is in audit logs alone.
_ONLY_LOGS_HAVE = ("disruptions.", "stability.", "audit.")
# What is known of processes of this machine alone.
_CPU_OF_PROVIDER = "resources.components.provider"
_OF_PROVIDERS = (f"{_CPU_OF_PROVIDER}.", "resources.processes.provider.")
_ELSEWHERE = "the provider is not the harness's, and no process of this machine that it can see"
_HOPS_OF_BIGFLEET = ("seen", "rolledUp", "decided", "provisioned")
_HOPS_TO_A_NODE = (*_HOPS_OF_BIGFLEET, "nodeReady")
# By system; "" is a bare run.
_HOPS_LACKING: Mapping[str, tuple[str, ...]] = {
    "": _HOPS_TO_A_NODE,
    "none": _HOPS_TO_A_NODE,
    "karpenter": _HOPS_OF_BIGFLEET,
    "command": _HOPS_OF_BIGFLEET,
}

Gate = TypeVar("Gate", bound=GateSpec)


class Inapplicable(msgspec.Struct, frozen=True):
    """A gate that says nothing about the system under test, and why."""

    name: str
    metric: str
    reason: str


class NotApplicable(msgspec.Struct, frozen=True):
    """What says nothing about the system under test: gates that were not judged, hops that no wait
    can have, and numbers that the run does not have, each with the reason.
    """

    gates: list[Inapplicable]
    hops: list[str]
    numbers: dict[str, str] = {}


def applicable(
    gates: Iterable[Gate],
    system: str,
    *,
    logged: bool = True,
    provider: ProviderUsed | None = None,
) -> list[Gate]:
    """The gates that apply to runs of a system: of all systems those on what any of them does, of
    none ("", a bare run) those on what kube-scheduler does. `logged`: there are audit logs;
    `provider`: BigFleet's, if it was not the harness's.
    """
    return [gate for gate in gates if not _reason_against(gate, system, logged, provider)]


def _reason_against(
    gate: GateSpec, system: str, logged: bool, provider: ProviderUsed | None
) -> str:
    """Why a gate does not apply to runs of a system; "" if it does."""
    if system == "bigfleet":
        return _ELSEWHERE if _unseen(provider) and gate.metric.startswith(_OF_PROVIDERS) else ""
    if not logged and gate.metric.startswith(_ONLY_LOGS_HAVE):
        return "it needs the API servers' audit logs, which the harness cannot read there"
    keys = gate.metric.split(".")
    if not system:
        is_of_binding = gate.ratio_to is None and _BARE_LACKS.isdisjoint(keys)
        if is_of_binding and not gate.metric.startswith(_ONLY_BIGFLEET_HAS):
            return ""
        return "a bare run has the nodes of its pair"
    if gate.metric.startswith(_ONLY_BIGFLEET_HAS):
        return "only BigFleet has it, or it is known from the journals of its shards alone"
    if system == "none" and not _OF_AN_AUTOSCALER.isdisjoint(keys):
        return "without an autoscaler all machines are there from the start"
    return ""


def _unseen(provider: ProviderUsed | None) -> bool:
    return provider is not None and not provider.cpu_measured


def not_applicable(
    limits: Sequence[GateSpec],
    system: str,
    *,
    logged: bool = True,
    provider: ProviderUsed | None = None,
) -> NotApplicable | None:
    """The summary's section; None for a whole BigFleet on this machine, to which all applies."""
    numbers = {_CPU_OF_PROVIDER: _ELSEWHERE} if _unseen(provider) else {}
    if system not in _HOPS_LACKING and not numbers:
        return None
    gates = [
        Inapplicable(gate.name, gate.metric, reason)
        for gate in limits
        if (reason := _reason_against(gate, system, logged, provider))
    ]
    return NotApplicable(gates=gates, hops=list(_HOPS_LACKING.get(system, ())), numbers=numbers)
