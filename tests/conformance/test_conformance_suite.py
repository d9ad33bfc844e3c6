"""The suite passes a sound provider, and finds each planted fault by the check that is about it."""

from __future__ import annotations

import asyncio
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
    """What the suite said of a provider, and how many machines that had for sale after."""

    found: dict[str, Result]
    for_sale: int


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Examined]:
    """The sound provider and each with a fault, side by side: a suite mostly waits."""

    async def one(parts: ProviderParts) -> Examined:
        async with subject(tmp_path_factory.mktemp("provider"), parts) as given:
            return Examined(await results(given), len(await given.speculative()))

    async def all_of_them() -> dict[str, Examined]:
        ended = await asyncio.gather(one(CONFORMING), *map(one, FAULTS.values()))
        return dict(zip(("sound", *FAULTS), ended, strict=True))

    return asyncio.run(all_of_them())


def test_a_sound_provider_passes_every_check(examined: dict[str, Examined]) -> None:
    """Those of crashes are not checked, and said to be, where nobody can make one."""
    found = examined["sound"].found
    assert named(found, CheckOutcome.FAILED) == {}
    assert set(named(found, CheckOutcome.SKIPPED)) == CRASHES
    assert all("--restart-command" in found[name].observed for name in CRASHES)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails_its_check_and_no_other(
    fault: str, examined: dict[str, Examined]
) -> None:
    """A check that failed for another's fault would send its reader to the wrong place."""
    assert set(named(examined[fault].found, CheckOutcome.FAILED)) == {FAULTS[fault].check}


def test_a_failed_check_gives_its_machines_back(examined: dict[str, Examined]) -> None:
    """After a run over a faulty provider all its machines are for sale again."""
    assert examined["blocking calls"].for_sale == 3


async def test_without_machines_nothing_is_judged(tmp_path: Path) -> None:
    """Too few machines are the caller's to cure, not a provider's fault."""
    async with subject(tmp_path, CONFORMING, machines=1) as given:
        with pytest.raises(InvalidInput, match="the suite needs 2 machines that are SPECULATIVE"):
            await results(given)


async def test_our_own_provider_keeps_the_contract_over_crashes_too(tmp_path: Path) -> None:
    """The kwok-backed one, as a process that is killed and started again."""
    cluster = FakeCluster()
    async with (
        cluster.serving("127.0.0.1", 0),
        running(tmp_path, cluster) as own,
        transport.channel(own.address) as channel,
    ):
        given = Subject(CapacityProviderStub(channel), cluster, RELAXED_BOUNDS, own.restart)
        found = await results(given)
    assert {n: r.observed for n, r in found.items() if r.outcome is not CheckOutcome.PASSED} == {}
