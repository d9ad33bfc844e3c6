"""BigFleet as a profile wants it: which roles run, with which flags."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from loaddriver.profile import Distribution, Settings
from loaddriver.substrates.base import Cluster, Endpoint, RoleSpec, Substrate

PROVIDER, SHARD = "provider", "shard-0"
# The shard's journal, found among the logs of the run.
JOURNAL = "machines.jsonl"
_OBSERVE = "observe"
_LISTEN = "listen"


def provider_role(settings: Settings, inventory: Path) -> RoleSpec:
    """The kwok-backed provider with the profile's machines and delays."""
    latency = settings.fleet.latency
    delays = {
        "create": latency.create_seconds,
        "configure": latency.configure_seconds,
        "drain": latency.drain_seconds,
        "delete": latency.delete_seconds,
    }
    arguments = [
        "provider",
        *("--listen", "{listen}", "--observe", "{observe}"),
        *("--state", "{state}", "--inventory", "{inventory}"),
        *("--host-kubeconfigs", "{hosts}", "--seed", str(settings.seed)),
        *("--spot-market-hours-per-second", f"{settings.fleet.spot_market_hours_per_second:g}"),
    ]
    for order, delay in delays.items():
        arguments += [f"--{order}-latency", _median_and_p99(delay)]
    return RoleSpec(
        PROVIDER,
        arguments,
        ports=(_LISTEN, _OBSERVE),
        observe_port=_OBSERVE,
        inputs={"inventory": inventory},
        kubeconfigs={"hosts": "fake-host"},
    )


def shard_role(settings: Settings) -> RoleSpec:
    """The one shard of a run on one machine; it dials the provider."""
    bigfleet = settings.bigfleet
    arguments = [
        "shard",
        *("--shard-id", SHARD, "--listen", "{listen}", "--observe", "{observe}"),
        *("--provider", f"{{{PROVIDER}/{_LISTEN}}}"),
        *("--state", "{state}", "--journal", "{journal}"),
        *("--cycle", f"{bigfleet.cycle_seconds:g}"),
        *("--reclaim-cap-fraction", f"{bigfleet.reclaim_cap_fraction:g}"),
        *("--reclaim-hold", f"{bigfleet.reclaim_hold_seconds:g}"),
        *("--on-demand-hold", f"{bigfleet.idle_hold_seconds:g}"),
        *("--spot-hold", f"{bigfleet.idle_hold_seconds:g}"),
    ]
    return RoleSpec(
        SHARD,
        arguments,
        ports=(_LISTEN, _OBSERVE),
        observe_port=_OBSERVE,
        serve_port=_LISTEN,
        outputs={"journal": JOURNAL},
    )


def cluster_roles(settings: Settings, cluster: Cluster) -> Iterator[RoleSpec]:
    """What runs beside one cluster: its operator, which dials the shard, and its pod controller."""
    yield RoleSpec(
        f"{cluster.name}/operator",
        [
            "operator",
            *("--cluster-id", cluster.name, "--shard", f"{{{SHARD}/{_LISTEN}}}"),
            *("--api-server-for-machines", "{api-server}"),
            *("--observe", "{observe}", "--rollup", f"{settings.bigfleet.rollup_seconds:g}"),
        ],
        ports=(_OBSERVE,),
        observe_port=_OBSERVE,
        cluster=cluster.name,
        identity="bigfleet-operator",
    )
    not_load = [("--ignore-namespace", namespace) for namespace in cluster.own_namespaces]
    yield RoleSpec(
        f"{cluster.name}/pod-controller",
        ["pod-controller", *("--observe", "{observe}"), *chain.from_iterable(not_load)],
        ports=(_OBSERVE,),
        observe_port=_OBSERVE,
        cluster=cluster.name,
        identity="bigfleet-pod-controller",
    )


async def start_fleet(
    substrate: Substrate, settings: Settings, clusters: Sequence[Cluster], inventory: Path
) -> dict[str, Endpoint]:
    """Start every role once those it depends on are ready. Endpoints by role name."""
    provider = await substrate.start_role(provider_role(settings, inventory))
    shard = await substrate.start_role(shard_role(settings))
    beside = [role for cluster in clusters for role in cluster_roles(settings, cluster)]
    started = await asyncio.gather(*(substrate.start_role(role) for role in beside))
    return {endpoint.name: endpoint for endpoint in (provider, shard, *started)}


def _median_and_p99(delay: float | Distribution) -> str:
    if isinstance(delay, Distribution):
        return f"{delay.median:g},{delay.p99:g}"
    return f"{delay:g},{delay:g}"
