"""The suite passes a correct provider and detects each injected fault with the right check."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from bigfleet.api import transport
from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from bigfleet.conformance.builtin_provider import running
from bigfleet.conformance.check import CheckOutcome, Result
from bigfleet.conformance.fake_cluster import FakeCluster
from bigfleet.conformance.subject import Subject
from bigfleet.conformance.suite import run_checks
from bigfleet.model.errors import InvalidInput
from tests.conformance.conformance_rig import RELAXED_BOUNDS, subject
from tests.conformance.faults import CONFORMING, FAULTS, ProviderParts

CRASHES = {"crash/orders-survive", "crash/fencing-survives"}


async def results(given: Subject) -> dict[str, Result]:
    return {result.check.name: result async for result in run_checks(given)}


def named(found: dict[str, Result], outcome: CheckOutcome) -> dict[str, str]:
    return {name: result.observed for name, result in found.items() if result.outcome is outcome}


@dataclass(frozen=True)
class Examined:
    """The results of a provider, and its SPECULATIVE machines afterwards."""

    found: dict[str, Result]
    for_sale: int


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Examined]:
    """The correct provider and each faulty one, concurrently: a suite mostly waits."""

    async def one(parts: ProviderParts) -> Examined:
        async with subject(tmp_path_factory.mktemp("provider"), parts) as given:
            return Examined(await results(given), len(await given.speculative()))

    async def all_of_them() -> dict[str, Examined]:
        ended = await asyncio.gather(one(CONFORMING), *map(one, FAULTS.values()))
        return dict(zip(("sound", *FAULTS), ended, strict=True))

    return asyncio.run(all_of_them())


def test_a_correct_provider_passes_every_check(examined: dict[str, Examined]) -> None:
    """Crash checks are skipped without a restart command."""
    found = examined["sound"].found
    assert named(found, CheckOutcome.FAILED) == {}
    assert set(named(found, CheckOutcome.SKIPPED)) == CRASHES
    assert all("--restart-command" in found[name].observed for name in CRASHES)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_injected_fault_fails_its_check_and_no_other(
    fault: str, examined: dict[str, Examined]
) -> None:
    """A check that fails for another's fault would mislead its reader."""
    assert set(named(examined[fault].found, CheckOutcome.FAILED)) == {FAULTS[fault].check}


def test_a_failed_check_deletes_its_machines(examined: dict[str, Examined]) -> None:
    """After a run against a faulty provider all its machines are SPECULATIVE again."""
    assert examined["blocking calls"].for_sale == 3


async def test_no_check_runs_without_machines(tmp_path: Path) -> None:
    """Too few machines are an input error, not a failure of the provider."""
    async with subject(tmp_path, CONFORMING, machines=1) as given:
        with pytest.raises(InvalidInput, match="the suite needs 2 machines that are SPECULATIVE"):
            await results(given)


async def test_the_built_in_provider_conforms_including_crashes(tmp_path: Path) -> None:
    """As a process that is killed and restarted."""
    cluster = FakeCluster()
    async with (
        cluster.serving("127.0.0.1", 0),
        running(tmp_path, cluster) as own,
        transport.channel(own.address) as channel,
    ):
        given = Subject(CapacityProviderStub(channel), cluster, RELAXED_BOUNDS, own.restart)
        found = await results(given)
    assert {n: r.observed for n, r in found.items() if r.outcome is not CheckOutcome.PASSED} == {}


async def test_nobody_takes_the_address_of_the_built_in_provider_while_it_is_down(
    tmp_path: Path,
) -> None:
    """It is started again there."""
    cluster = FakeCluster()
    async with cluster.serving("127.0.0.1", 0), running(tmp_path, cluster) as own:
        await own.kill()
        host, _, port = own.address.rpartition(":")
        with socket.socket() as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                stranger.bind((host, int(port)))
        await own.restart()
