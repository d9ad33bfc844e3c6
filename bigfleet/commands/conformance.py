"""`bigfleet conformance`: does a provider keep its contract?"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigfleet.commands.flags import address, identity_flag, identity_of
from bigfleet.model.errors import BigFleetError, InvalidInput

if TYPE_CHECKING:
    from bigfleet.api.auth.identity import Identity
    from bigfleet.conformance.check import Result
    from bigfleet.conformance.cluster import Cluster
    from bigfleet.conformance.subject import Bounds, Subject


def add(roles: Any) -> None:
    """Add the command to the parser's `roles`."""
    role = roles.add_parser(
        "conformance",
        help="checks whether a provider keeps its contract",
        description="Buys, configures, drains and gives back SPECULATIVE machines of type "
        "ON_DEMAND or SPOT, of which the provider needs two, and says rule by rule what was seen. "
        "Exit code 0 when no rule was broken. With an identity, use an admin's: it gives orders as "
        "several shards.",
    )
    which = role.add_mutually_exclusive_group(required=True)
    which.add_argument("--target", metavar="HOST:PORT", help="the provider to check")
    which.add_argument(
        "--builtin", action="store_true", help="BigFleet's own provider, started for the occasion"
    )
    identity_flag(role)
    role.add_argument("--output", choices=("text", "json"), default="text")
    role.add_argument("--junit", type=Path, metavar="FILE", help="write a report for CI systems")
    _cluster_flags(role)
    _bound_flags(role)
    role.set_defaults(build=lambda flags: partial(_run, flags))


def _cluster_flags(role: argparse.ArgumentParser) -> None:
    role.add_argument("--cluster-id", default="conformance", metavar="ID")
    role.add_argument(
        "--cluster-listen",
        type=address,
        default=("127.0.0.1", 0),
        metavar="HOST:PORT",
        help="where the suite serves the cluster that machines join; they must reach it there "
        "(default: any port of 127.0.0.1)",
    )
    role.add_argument(
        "--cluster-kubeconfig",
        type=Path,
        metavar="FILE",
        help="write access to that cluster here, for hosts that watch their Nodes with one",
    )
    role.add_argument(
        "--bootstrap-blob",
        type=Path,
        metavar="FILE",
        help="for another cluster: what a machine needs to join it, {machine} for its id; checks "
        "that need the suite's own cluster are then left out, and said to be",
    )
    role.add_argument(
        "--restart-command",
        metavar="COMMAND",
        help="kills the provider (kill -9) and starts it again; without it crashes are not checked",
    )


def _bound_flags(role: argparse.ArgumentParser) -> None:
    for name, default, meaning in (
        ("answer", 1, "an order must have answered"),
        ("state", 10, "an order must have led to its state"),
        ("drain", 30, "a drain must have ended after its grace"),
    ):
        role.add_argument(
            f"--{name}-seconds",
            type=float,
            metavar="SECONDS",
            help=f"by when {meaning} (default: {default})",
        )


async def _run(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    """Check and print; InvalidInput or Unavailable when it cannot be checked."""
    from bigfleet.conformance import report
    from bigfleet.conformance.suite import run_checks

    if flags.junit and not flags.junit.parent.is_dir():
        raise InvalidInput("--junit", str(flags.junit), "is in no directory that exists")
    async with _subject(flags) as (target, subject):
        results = []
        async for result in run_checks(subject):
            results.append(result)
            if flags.output == "text":
                print(report.line(result), flush=True)
            if stop.is_set():
                break
        leftover_machines = await _leftover_machines(subject)
    if leftover_machines:
        print(report.leftover_line(leftover_machines), file=sys.stderr)
    if stop.is_set():
        raise BigFleetError(f"interrupted after {len(results)} checks; nothing was judged")
    _report(flags, results, target, leftover_machines)


def _report(
    flags: argparse.Namespace,
    results: Sequence[Result],
    target: str,
    leftover_machines: Mapping[str, str],
) -> None:
    """In the ways that were asked for; BigFleetError when a rule was broken."""
    from bigfleet.conformance import report

    print(
        report.as_json(results, target, leftover_machines)
        if flags.output == "json"
        else report.verdict(results, target)
    )
    if flags.junit:
        flags.junit.write_bytes(report.as_junit(results, target))
    if not report.conforms(results):
        raise BigFleetError(f"the provider at {target} does not keep the contract")


async def _leftover_machines(subject: Subject) -> Mapping[str, str]:
    """What checks could not give back; all that they used where the provider does not say."""
    import grpc.aio

    try:
        return await subject.leftover_machines()
    except grpc.aio.AioRpcError:
        return dict.fromkeys(subject.used, "unknown")


@asynccontextmanager
async def _subject(flags: argparse.Namespace) -> AsyncIterator[tuple[str, Subject]]:
    """What is to be checked, and where it is."""
    from bigfleet.conformance.builtin_provider import running
    from bigfleet.conformance.fake_cluster import FakeCluster

    identity, bounds = identity_of(flags), _bounds(flags)
    if flags.builtin and identity is not None:
        raise InvalidInput(
            "--builtin", str(identity.directory), "needs no identity; use --insecure"
        )
    served = FakeCluster(flags.cluster_id)
    async with served.serving(*flags.cluster_listen):
        if flags.cluster_kubeconfig:
            flags.cluster_kubeconfig.write_bytes(served.kubeconfig())
        if flags.builtin:
            with tempfile.TemporaryDirectory() as folder:
                async with (
                    running(Path(folder), served) as builtin,
                    _connected(builtin.address, None, served, bounds) as subject,
                ):
                    subject.restart = builtin.restart
                    yield builtin.address, subject
            return
        async with _connected(flags.target, identity, _cluster(flags, served), bounds) as subject:
            if flags.restart_command:
                subject.restart = partial(_shell, flags.restart_command)
            yield flags.target, subject


def _cluster(flags: argparse.Namespace, served: Cluster) -> Cluster:
    from bigfleet.conformance.cluster import ExternalCluster

    if flags.bootstrap_blob is None:
        return served
    try:
        return ExternalCluster(flags.cluster_id, flags.bootstrap_blob.read_bytes())
    except OSError as error:
        hint = f"cannot be read: {error.strerror}"
        raise InvalidInput("--bootstrap-blob", str(flags.bootstrap_blob), hint) from None


@asynccontextmanager
async def _connected(
    target: str, identity: Identity | None, cluster: Cluster, bounds: Bounds
) -> AsyncIterator[Subject]:
    """The provider at `target`, once it has answered; Unavailable when it does not."""
    import grpc.aio

    from bigfleet.api import transport
    from bigfleet.api.auth.tls_diagnosis import explain_failure
    from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderStub
    from bigfleet.conformance.subject import Subject
    from bigfleet.model.errors import Unavailable

    async with transport.channel(target, identity, "provider") as channel:
        subject = Subject(CapacityProviderStub(channel), cluster, bounds)
        try:
            await subject.listed(max_results=1)
        except grpc.aio.AioRpcError as error:
            reason = await explain_failure(error, target, identity, "provider")
            raise Unavailable(f"the provider at {target} cannot be checked: {reason}") from None
        yield subject


def _bounds(flags: argparse.Namespace) -> Bounds:
    from bigfleet.conformance.subject import Bounds

    given = {name: getattr(flags, f"{name}_seconds") for name in ("answer", "state", "drain")}
    wrong = {name: value for name, value in given.items() if value is not None and value <= 0}
    for name, value in wrong.items():
        raise InvalidInput(f"--{name}-seconds", value, "is not > 0")
    return Bounds(**{name: value for name, value in given.items() if value is not None})


async def _shell(command: str) -> None:
    process = await asyncio.create_subprocess_shell(command)
    if code := await process.wait():
        raise InvalidInput("--restart-command", command, f"ended with exit code {code}")
