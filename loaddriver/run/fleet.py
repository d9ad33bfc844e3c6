"""BigFleet as a profile wants it: which roles run, with which flags."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from loaddriver.profile import Distribution, Settings
from loaddriver.substrates.base import Cluster, Endpoint, RoleSpec, Substrate

PROVIDER, SHARD = "provider", "shard-0"
_OBSERVE = "observe"
_LISTEN = "listen"


def provider_role(settings: Settings, inventory: Path, hosts: Path, state: Path) -> RoleSpec:
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
        *("--state", str(state), "--inventory", str(inventory)),
        *("--host-kubeconfigs", str(hosts), "--seed", str(settings.seed)),
        *("--spot-market-hours-per-second", f"{settings.fleet.spot_market_hours_per_second:g}"),
    ]
    for order, delay in delays.items():
        arguments += [f"--{order}-latency", _median_and_p99(delay)]
    return RoleSpec(PROVIDER, arguments, (_LISTEN, _OBSERVE), _OBSERVE)


def shard_role(settings: Settings, provider: Endpoint, state: Path, journal: Path) -> RoleSpec:
    """The one shard of a run on one machine."""
    bigfleet = settings.bigfleet
    arguments = [
        "shard",
        *("--shard-id", SHARD, "--listen", "{listen}", "--observe", "{observe}"),
        *("--provider", provider.addresses[_LISTEN]),
        *("--state", str(state), "--journal", str(journal)),
        *("--cycle", f"{bigfleet.cycle_seconds:g}"),
        *("--reclaim-cap-fraction", f"{bigfleet.reclaim_cap_fraction:g}"),
        *("--reclaim-hold", f"{bigfleet.reclaim_hold_seconds:g}"),
        *("--on-demand-hold", f"{bigfleet.idle_hold_seconds:g}"),
        *("--spot-hold", f"{bigfleet.idle_hold_seconds:g}"),
    ]
    return RoleSpec(SHARD, arguments, (_LISTEN, _OBSERVE), _OBSERVE)


def cluster_roles(settings: Settings, cluster: Cluster, shard: Endpoint) -> Iterator[RoleSpec]:
    """What runs beside one cluster: its operator and its pod controller."""
    yield RoleSpec(
        f"{cluster.name}/operator",
        [
            "operator",
            *("--cluster-id", cluster.name, "--shard", shard.addresses[_LISTEN]),
            *("--kubeconfig", str(cluster.kubeconfigs["bigfleet-operator"])),
            *("--observe", "{observe}", "--rollup", f"{settings.bigfleet.rollup_seconds:g}"),
        ],
        (_OBSERVE,),
        _OBSERVE,
    )
    yield RoleSpec(
        f"{cluster.name}/pod-controller",
        [
            "pod-controller",
            *("--kubeconfig", str(cluster.kubeconfigs["bigfleet-pod-controller"])),
            *("--observe", "{observe}"),
        ],
        (_OBSERVE,),
        _OBSERVE,
    )


async def start_fleet(
    substrate: Substrate,
    settings: Settings,
    clusters: Sequence[Cluster],
    inventory: Path,
    scratch: Path,
    journal: Path,
) -> dict[str, Endpoint]:
    """Start every role once those it depends on are ready. Endpoints by role name."""
    hosts = _host_kubeconfigs(clusters, scratch / "hosts")
    provider = await substrate.start_role(
        provider_role(settings, inventory, hosts, scratch / PROVIDER)
    )
    shard = await substrate.start_role(shard_role(settings, provider, scratch / SHARD, journal))
    beside = [role for cluster in clusters for role in cluster_roles(settings, cluster, shard)]
    started = await asyncio.gather(*(substrate.start_role(role) for role in beside))
    return {endpoint.name: endpoint for endpoint in (provider, shard, *started)}


def _host_kubeconfigs(clusters: Sequence[Cluster], folder: Path) -> Path:
    folder.mkdir(parents=True, mode=0o700)
    for cluster in clusters:
        shutil.copy(cluster.kubeconfigs["fake-host"], folder / f"{cluster.name}.kubeconfig")
    return folder


def _median_and_p99(delay: float | Distribution) -> str:
    if isinstance(delay, Distribution):
        return f"{delay.median:g},{delay.p99:g}"
    return f"{delay:g},{delay:g}"
