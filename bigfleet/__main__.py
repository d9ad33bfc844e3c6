"""`bigfleet ROLE ...` runs one role until it is told to stop. Flags are read here and nowhere else.

A role's modules are loaded only when it runs: a process shall not carry the others' libraries.

Exit code 0 after SIGTERM or SIGINT, 2 when what it was given cannot work, 1 when it failed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from bigfleet.api.auth import handshakes
from bigfleet.commands import (
    certs,
    conformance,
    coordinator,
    federation,
    fedhpa,
    fleet,
    shard,
    why,
)
from bigfleet.commands.flags import (
    addresses,
    identity_flag,
    identity_of,
    kubeconfig_flag,
    lease_flags,
    observe_flag,
    server_flags,
)
from bigfleet.model.errors import BigFleetError, InvalidInput
from bigfleet.observe import log, native_log

Role = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the role that `arguments` name; the process's exit code."""
    flags = _parser().parse_args(arguments)
    if getattr(flags, "identity", None):
        # Read by gRPC when it is first imported, which roles do: only TLS 1.3 has ciphers left,
        # as the one named here is of no use without a shared secret.
        os.environ.setdefault("GRPC_SSL_CIPHER_SUITES", "ECDHE-PSK-CHACHA20-POLY1305")
        native_log.redirect_stderr_to(handshakes.record_handshake_failure)
    log.to_stderr(flags.role)
    try:
        asyncio.run(_until_signalled(flags.build(flags)))
    except InvalidInput as error:
        print(f"bigfleet {flags.role}: {error}", file=sys.stderr)
        return 2
    except (BigFleetError, OSError) as error:
        print(f"bigfleet {flags.role}: {error}", file=sys.stderr)
        return 1
    return 0


async def _until_signalled(role: Role) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await role(stop)


def _provider(flags: argparse.Namespace) -> Role:
    from bigfleet.services.provider import role as provider
    from bigfleet.services.provider.config import Latencies, Latency, ProviderConfig

    (listen_host, listen_port), (observe_host, observe_port) = flags.listen, flags.observe
    settings = ProviderConfig(
        identity=identity_of(flags, "provider", ProviderConfig.provider_name),
        listen_host=listen_host,
        listen_port=listen_port,
        observe_host=observe_host,
        observe_port=observe_port,
        state_directory=flags.state,
        inventory_file=flags.inventory,
        host_kubeconfigs=flags.host_kubeconfigs,
        latencies=Latencies(
            create=Latency(*flags.create_latency),
            configure=Latency(*flags.configure_latency),
            drain=Latency(*flags.drain_latency),
            delete=Latency(*flags.delete_latency),
        ),
        boot_timeout_seconds=flags.boot_timeout,
        seed=flags.seed,
        spot_market_hours_per_second=flags.spot_market_hours_per_second,
        repair_seconds=flags.repair_time,
    )
    return lambda stop: provider.run(settings, stop)


def _operator(flags: argparse.Namespace) -> Role:
    from bigfleet.controllers.operator import role as operator

    observe_host, observe_port = flags.observe
    settings = operator.OperatorConfig(
        identity=identity_of(flags, "cluster", flags.cluster_id),
        cluster_id=flags.cluster_id,
        shard_addresses=flags.shard,
        kubeconfig=flags.kubeconfig,
        api_server_for_machines=flags.api_server_for_machines,
        observe_host=observe_host,
        observe_port=observe_port,
        rollup_seconds=flags.rollup_interval,
        acknowledge_per_second=flags.acknowledgement_qps,
        node_ready_timeout_seconds=flags.node_ready_timeout,
        lease_seconds=flags.lease,
        replica=flags.replica,
    )
    return lambda stop: operator.run(settings, stop)


def _pod_controller(flags: argparse.Namespace) -> Role:
    from bigfleet.controllers.pod_controller import role as pod_controller

    observe_host, observe_port = flags.observe
    settings = pod_controller.PodControllerConfig(
        kubeconfig=flags.kubeconfig,
        observe_host=observe_host,
        observe_port=observe_port,
        write_concurrency=flags.write_concurrency,
        ignored_namespaces=tuple(flags.ignore_namespace),
        lease_seconds=flags.lease,
        replica=flags.replica,
        unschedulable_delay_seconds=flags.unschedulable_delay,
    )
    return lambda stop: pod_controller.run(settings, stop)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bigfleet", description="One autoscaler above a fleet of Kubernetes clusters."
    )
    roles = parser.add_subparsers(dest="role", required=True, metavar="ROLE")
    _provider_flags(roles.add_parser("provider", help="the kwok-backed capacity provider"))
    shard.add(roles)
    coordinator.add(roles)
    _operator_flags(roles.add_parser("operator", help="speaks for one cluster to its shard"))
    _pod_controller_flags(
        roles.add_parser("pod-controller", help="writes a CapacityRequest for every Pod")
    )
    federation.add(roles)
    fedhpa.add(roles)
    why.add(roles)
    fleet.add(roles)
    certs.add(roles)
    conformance.add(roles)
    return parser


def _provider_flags(role: argparse.ArgumentParser) -> None:
    server_flags(role)
    identity_flag(role)
    role.add_argument(
        "--inventory", type=Path, required=True, help="machines to begin with (JSON lines)"
    )
    role.add_argument(
        "--host-kubeconfigs",
        type=Path,
        metavar="DIR",
        help="CLUSTER.kubeconfig for each cluster whose Nodes the fake hosts watch; "
        "without it machines boot without a cluster",
    )
    for order in ("create", "configure", "drain", "delete"):
        role.add_argument(
            f"--{order}-latency",
            type=_latency,
            default=(0.0, 0.0),
            metavar="MEDIAN,P99",
            help=f"seconds to {order} a machine (default: at once)",
        )
    role.add_argument(
        "--repair-time",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="until a fixed machine that failed is well again (default: 60; inf: never)",
    )
    role.add_argument("--boot-timeout", type=float, default=120.0, metavar="SECONDS")
    role.add_argument("--seed", type=int, default=0, help="of the latencies' randomness")
    role.add_argument(
        "--spot-market-hours-per-second",
        type=float,
        default=0.0,
        metavar="HOURS",
        help="lose spot machines as if so many hours passed per second",
    )
    role.set_defaults(build=_provider)


def _operator_flags(role: argparse.ArgumentParser) -> None:
    observe_flag(role)
    kubeconfig_flag(role)
    identity_flag(role)
    lease_flags(role)
    role.add_argument("--cluster-id", required=True)
    role.add_argument(
        "--shard",
        type=addresses,
        required=True,
        metavar="HOST:PORT,...",
        help="some shards; whichever answers names the one that serves this cluster",
    )
    role.add_argument(
        "--api-server-for-machines", metavar="URL", help="default: the operator's own"
    )
    role.add_argument(
        "--rollup-interval",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="longest time between two",
    )
    role.add_argument(
        "--acknowledgement-qps",
        type=float,
        default=200.0,
        metavar="N",
        help="writes spent on acknowledging CapacityRequests; 0 turns it off",
    )
    role.add_argument(
        "--node-ready-timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="after which a Node that is not Ready, or has not come, counts as broken",
    )
    role.set_defaults(build=_operator)


def _pod_controller_flags(role: argparse.ArgumentParser) -> None:
    observe_flag(role)
    kubeconfig_flag(role)
    lease_flags(role)
    role.add_argument("--write-concurrency", type=int, default=16, metavar="N")
    role.add_argument(
        "--ignore-namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="whose pods run on nodes that BigFleet does not provide; may be repeated",
    )
    role.add_argument(
        "--unschedulable-delay",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="after which an unschedulable pod asks for a machine beyond those that are there",
    )
    role.set_defaults(build=_pod_controller)


def _latency(text: str) -> tuple[float, float]:
    try:
        median, p99 = (float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not MEDIAN,P99 in seconds") from None
    return median, p99


if __name__ == "__main__":
    sys.exit(main())
