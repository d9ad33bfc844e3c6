"""`bigfleet conformance`: checks that a provider conforms to the contract."""

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

from bigfleet.commands.config_flags import add_config, config_values
from bigfleet.commands.flags import address, identity_flag, identity_of
from bigfleet.model.errors import BigFleetError, InvalidInput

if TYPE_CHECKING:
    from bigfleet.api.auth.identity import Identity
    from bigfleet.conformance.check import Result
    from bigfleet.conformance.cluster import Cluster
    from bigfleet.conformance.subject import Bounds, Subject


def add(roles: Any) -> None:
    """Add the command to the parser's `roles`."""
    roles.add_parser(
        "conformance",
        help="check that a provider conforms to the contract",
        description="Creates, configures, drains and deletes SPECULATIVE machines of type "
        "ON_DEMAND or SPOT, of which the provider needs two, and reports the result of each check. "
        "Exit code 0 if the provider conforms. An identity must be an admin's, because the checks "
        "act as several shards.",
        fill=_flags,
    )


def _flags(role: argparse.ArgumentParser) -> None:
    from bigfleet.conformance.subject import Bounds

    which = role.add_mutually_exclusive_group(required=True)
    which.add_argument("--target", metavar="HOST:PORT", help="the provider to check")
    which.add_argument("--builtin", action="store_true", help="run against the built-in provider")
    identity_flag(role)
    role.add_argument("--output", choices=("text", "json"), default="text")
    role.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit report")
    _cluster_flags(role)
    add_config(role, Bounds)
    role.set_defaults(build=lambda flags: partial(_run, flags))


def _cluster_flags(role: argparse.ArgumentParser) -> None:
    role.add_argument("--cluster-id", default="conformance", metavar="ID")
    role.add_argument(
        "--cluster-listen",
        type=address,
        default=("127.0.0.1", 0),
        metavar="HOST:PORT",
        help="where the suite serves the API of the cluster that machines join "
        "(default: any port of 127.0.0.1)",
    )
    role.add_argument(
        "--cluster-kubeconfig",
        type=Path,
        metavar="FILE",
        help="write a kubeconfig of that cluster here, for hosts that watch their Nodes",
    )
    role.add_argument(
        "--bootstrap-blob",
        type=Path,
        metavar="FILE",
        help="bootstrap blob of another cluster, with {machine} in place of the machine's id; "
        "checks that need the suite's own cluster are skipped",
    )
    role.add_argument(
        "--restart-command",
        metavar="COMMAND",
        help="kills the provider (kill -9) and restarts it; without it, crash checks are skipped",
    )


async def _run(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    """Run the checks and print results; InvalidInput or Unavailable if they cannot run."""
    from bigfleet.conformance import report
    from bigfleet.conformance.suite import run_checks

    if flags.junit and not flags.junit.parent.is_dir():
        raise InvalidInput("--junit", str(flags.junit), "is not in an existing directory")
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
        raise BigFleetError(f"interrupted after {len(results)} checks; no verdict")
    _report(flags, results, target, leftover_machines)


def _report(
    flags: argparse.Namespace,
    results: Sequence[Result],
    target: str,
    leftover_machines: Mapping[str, str],
) -> None:
    """Write the requested reports; BigFleetError if the provider does not conform."""
    from bigfleet.conformance import report

    print(
        report.as_json(results, target, leftover_machines)
        if flags.output == "json"
        else report.verdict(results, target)
    )
    if flags.junit:
        flags.junit.write_bytes(report.as_junit(results, target))
    if not report.conforms(results):
        raise BigFleetError(f"the provider at {target} does not conform")


async def _leftover_machines(subject: Subject) -> Mapping[str, str]:
    """Machines that checks could not delete; all that they used if the provider does not list."""
    import grpc.aio

    try:
        return await subject.leftover_machines()
    except grpc.aio.AioRpcError:
        return dict.fromkeys(subject.used, "unknown")


@asynccontextmanager
async def _subject(flags: argparse.Namespace) -> AsyncIterator[tuple[str, Subject]]:
    """The provider to check, and its address."""
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
    """The provider at `target`, once it has answered; Unavailable if it does not."""
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

    seconds = config_values(Bounds, flags)
    for name, value in seconds.items():
        if not value > 0:
            raise InvalidInput(f"--{name}-seconds", value, "is not > 0")
    return Bounds(**seconds)


async def _shell(command: str) -> None:
    process = await asyncio.create_subprocess_shell(command)
    if code := await process.wait():
        raise InvalidInput("--restart-command", command, f"ended with exit code {code}")
