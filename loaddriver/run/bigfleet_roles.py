"""The BigFleet roles of a profile and their flags."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from bigfleet.api.auth.identity import Principal
from loaddriver.errors import ProfileError
from loaddriver.profile.fleet import LatencyDistribution
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.settings import ProfileSettings
from loaddriver.record.cpu import PROVIDER
from loaddriver.substrates.base import Cluster, Endpoint, RoleSpec, Substrate

# The first shard's journal among the run's logs; those of further shards have their number in it.
JOURNAL = "machines.jsonl"
JOURNALS = "machines*.jsonl"
# The only replica: its fixed identity lets it resume after a restart, and the long lease lets it
# keep leading while the API server is overloaded.
_LONE_REPLICA = ("--replica", "loaddriver", "--lease", "120")
# Of a load of CapacityRequests the acknowledgements are what is timed: more than are created.
_TIMED_ACKNOWLEDGEMENTS_PER_SECOND = 200.0
# Never rotate: a run is judged by its whole journal.
_WHOLE_JOURNAL_MEGABYTES = "1000000"
# Written once the soak begins, for all providers.
_MARKET = "market.jsonl"
_PEER = "peer"
# The name of the only provider, also in every providerID.
_PROVIDER_NAME = "kwok"
_OBSERVE = "observe"
LISTEN = "listen"


def provider_roles(settings: ProfileSettings, inventories: Path) -> list[RoleSpec]:
    """The providers, each with its part of the fleet from a file in the folder `inventories`; none
    if one runs already.
    """
    if settings.fleet.running_provider:
        return []
    if not settings.fleet.providers:
        return [provider_role(settings, inventory_of(inventories))]
    return [
        provider_role(settings, inventory_of(inventories, each.name), each.name, number)
        for number, each in enumerate(settings.fleet.providers)
    ]


def inventory_of(inventories: Path, provider: str = "") -> Path:
    """The file with the machines of a provider, or of the only one."""
    return inventories / f"inventory{f'-{provider}' if provider else ''}.jsonl"


def market_of(inventories: Path) -> Path:
    """The file by which prices move and kinds of machines are interrupted."""
    return inventories / _MARKET


def provider_role(
    settings: ProfileSettings, inventory: Path, name: str = "", number: int = 0
) -> RoleSpec:
    """A kwok-backed provider with the profile's latencies and the machines of `inventory`."""
    latency = settings.fleet.latency
    delays = {
        "create": latency.create_seconds,
        "configure": latency.configure_seconds,
        "drain": latency.drain_seconds,
        "delete": latency.delete_seconds,
    }
    arguments = [
        "provider",
        *("--listen", "{listen}", "--observe", "{observe}", "--identity", "{identity}"),
        *("--state", "{state}", "--inventory", "{inventory}"),
        *("--host-kubeconfigs", "{hosts}", "--seed", str(settings.seed + number)),
        *("--spot-market-hours-per-second", f"{settings.fleet.spot_market_hours_per_second:g}"),
    ]
    for action, delay in delays.items():
        arguments += [f"--{action}-latency", _median_and_p99(delay)]
    if name:
        arguments += ["--name", name]
    inputs = {"inventory": inventory}
    if settings.fleet.market_key:
        arguments += ["--market", "{market}"]
        inputs["market"] = market_of(inventory.parent)
    return RoleSpec(
        f"{PROVIDER}-{name}" if name else PROVIDER,
        arguments,
        ports=(LISTEN, _OBSERVE),
        observe_port=_OBSERVE,
        inputs=inputs,
        kubeconfigs={"hosts": "fake-host"},
        peer_identity=Principal("provider", name or _PROVIDER_NAME),
    )


def coordinator_roles(settings: ProfileSettings) -> list[RoleSpec]:
    """The coordinator's replicas, each with its own etcd member."""
    names = [f"coordinator-{number}" for number in range(settings.bigfleet.coordinators)]
    members = ",".join(f"{name}={{{name}/{_PEER}}}" for name in names)
    together = ("--peers", members) if len(names) > 1 else ()
    return [_coordinator_role(settings, name, together, names) for name in names]


def _coordinator_role(
    settings: ProfileSettings, name: str, together: Sequence[str], names: Sequence[str]
) -> RoleSpec:
    arguments = [
        "coordinator",
        *("--node-id", name, "--listen", "{listen}", "--observe", "{observe}"),
        *("--identity", "{identity}", "--state", "{state}", "--etcd", "{etcd}"),
        *("--expected-shards", str(settings.bigfleet.shards), *together),
    ]
    return RoleSpec(
        name,
        arguments,
        ports=(LISTEN, _OBSERVE, _PEER),
        observe_port=_OBSERVE,
        preallocated_ports=[f"{each}/{_PEER}" for each in names],
        peer_identity=Principal("coordinator", name),
    )


def shard_role(settings: ProfileSettings, number: int = 0) -> RoleSpec:
    """One shard; it connects to all providers, and to the coordinator if there is one."""
    bigfleet, name = settings.bigfleet, f"shard-{number}"
    arguments = [
        "shard",
        *("--shard-id", name, "--listen", "{listen}", "--observe", "{observe}"),
        *chain.from_iterable(("--provider", each) for each in _provider_addresses(settings)),
        *("--identity", "{identity}", "--state", "{state}", "--journal", "{journal}"),
        *("--journal-megabytes", _WHOLE_JOURNAL_MEGABYTES),
        *("--cycle", f"{bigfleet.cycle_seconds:g}"),
        *("--reclaim-cap-fraction", f"{bigfleet.reclaim_cap_fraction:g}"),
        *("--reclaim-hold", f"{bigfleet.reclaim_hold_seconds:g}"),
        *("--on-demand-hold", f"{bigfleet.idle_hold_seconds:g}"),
        *("--spot-hold", f"{bigfleet.idle_hold_seconds:g}"),
    ]
    if replicas := coordinator_roles(settings):
        arguments += ["--coordinator", _addresses([each.name for each in replicas])]
    return RoleSpec(
        name,
        arguments,
        ports=(LISTEN, _OBSERVE),
        observe_port=_OBSERVE,
        outputs={"journal": JOURNAL.replace(".", f"-{number}.") if number else JOURNAL},
        peer_identity=Principal("shard", name),
    )


def _provider_addresses(settings: ProfileSettings) -> list[str]:
    """The address of each provider, or its placeholder."""
    if running := settings.fleet.running_provider:
        return [running.address]
    names = [f"{PROVIDER}-{each.name}" for each in settings.fleet.providers] or [PROVIDER]
    return [f"{{{name}/{LISTEN}}}" for name in names]


def _acknowledgements_per_second(settings: ProfileSettings) -> float:
    per_second = settings.bigfleet.acknowledgements_per_second
    if per_second is None:
        return _TIMED_ACKNOWLEDGEMENTS_PER_SECOND if settings.load.mode == "cr" else 0.0
    return per_second


def _addresses(roles: Sequence[str]) -> str:
    return ",".join(f"{{{role}/{LISTEN}}}" for role in roles)


def served_clusters(settings: ProfileSettings, clusters: Iterable[Cluster]) -> Sequence[Cluster]:
    """The clusters with an operator: not the one that has machines of its own only."""
    own = settings.federation.on_premise.cluster if settings.federation else None
    return [cluster for cluster in clusters if cluster.name != own]


def cluster_roles(settings: ProfileSettings, cluster: Cluster) -> Iterator[RoleSpec]:
    """The operator and the pod controller of one cluster."""
    first_shards = settings.bigfleet.shard_names[: settings.bigfleet.shards]
    yield RoleSpec(
        f"{cluster.name}/operator",
        [
            "operator",
            *("--cluster-id", cluster.name, "--shard", _addresses(first_shards)),
            *("--identity", "{identity}", "--api-server-for-machines", "{api-server}"),
            *(
                "--observe",
                "{observe}",
                "--rollup-interval",
                f"{settings.bigfleet.rollup_seconds:g}",
            ),
            *("--node-ready-timeout", f"{settings.bigfleet.node_ready_timeout_seconds:g}"),
            *("--acknowledgement-qps", f"{_acknowledgements_per_second(settings):g}"),
            *_LONE_REPLICA,
        ],
        ports=(_OBSERVE,),
        observe_port=_OBSERVE,
        cluster=cluster.name,
        identity="bigfleet-operator",
        peer_identity=Principal("cluster", cluster.name),
    )
    ignored = [("--ignore-namespace", namespace) for namespace in cluster.own_namespaces]
    yield RoleSpec(
        f"{cluster.name}/pod-controller",
        [
            "pod-controller",
            *("--observe", "{observe}"),
            *("--unschedulable-delay", f"{settings.bigfleet.unschedulable_delay_seconds:g}"),
            *_LONE_REPLICA,
            *chain.from_iterable(ignored),
        ],
        ports=(_OBSERVE,),
        observe_port=_OBSERVE,
        cluster=cluster.name,
        identity="bigfleet-pod-controller",
    )


def fleet_roles(
    settings: ProfileSettings, clusters: Sequence[Cluster], inventories: Path
) -> dict[str, RoleSpec]:
    """All roles by name, also the shards that join later."""
    shards = [shard_role(settings, number) for number in range(settings.bigfleet.most_shards)]
    of_clusters = (role for cluster in clusters for role in cluster_roles(settings, cluster))
    providers, coordinators = provider_roles(settings, inventories), coordinator_roles(settings)
    return {role.name: role for role in (*providers, *coordinators, *shards, *of_clusters)}


def check_faults(settings: ProfileSettings) -> None:
    """Raise ProfileError for a fault of a role that the fleet does not have."""
    clusters = [Cluster(name, "", {}, None) for name in settings.cluster_names]
    known = fleet_roles(settings, clusters, Path())
    for number, fault in enumerate(settings.faults):
        if fault.role not in known:
            hint = did_you_mean(fault.role, known)
            raise ProfileError([f"faults[{number}].role = {fault.role!r}: no such role{hint}"])


async def start_fleet(
    substrate: Substrate, settings: ProfileSettings, clusters: Sequence[Cluster], inventories: Path
) -> dict[str, Endpoint]:
    """Start every role after its dependencies are ready; return the endpoints by role name. Shards
    that join later are not among them.
    """
    starting = [substrate.start_role(role) for role in provider_roles(settings, inventories)]
    providers = await asyncio.gather(*starting)
    replicas = [substrate.start_role(role) for role in coordinator_roles(settings)]
    coordinators = await asyncio.gather(*replicas)
    numbers = range(settings.bigfleet.shards)
    shards = [await substrate.start_role(shard_role(settings, number)) for number in numbers]
    cluster_specs = [role for cluster in clusters for role in cluster_roles(settings, cluster)]
    started = await asyncio.gather(*(substrate.start_role(role) for role in cluster_specs))
    return {each.name: each for each in (*providers, *coordinators, *shards, *started)}


def shards_of(roles: Iterable[Endpoint]) -> list[Endpoint]:
    """The shards among `roles`."""
    return [role for role in roles if role.name.startswith("shard-")]


def coordinators_of(roles: Iterable[Endpoint]) -> list[Endpoint]:
    """The coordinator's replicas among `roles`."""
    return [role for role in roles if role.name.startswith("coordinator-")]


def providers_of(roles: Iterable[Endpoint]) -> list[Endpoint]:
    """The providers among `roles`."""
    return [role for role in roles if role.name.startswith(PROVIDER)]


def inspect_commands(roles: Iterable[Endpoint]) -> Iterator[str]:
    """Commands to inspect each shard."""
    for role in shards_of(roles):
        if role.readonly_identity:
            way_in = f"--shard {role.addresses[LISTEN]} --identity {role.readonly_identity}"
            yield f"{role.name}: bigfleet why {way_in} --need CLUSTER"


def _median_and_p99(delay: float | LatencyDistribution) -> str:
    if isinstance(delay, LatencyDistribution):
        return f"{delay.median:g},{delay.p99:g}"
    return f"{delay:g},{delay:g}"
