"""Reports of a failed check suffice to fix it, and the suite cleans up."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance import report
from bigfleet.conformance.check import Check, CheckOutcome, Result
from bigfleet.conformance.rules import crash, fencing, lifecycle, reading
from bigfleet.conformance.subject import Bounds, Subject
from bigfleet.conformance.suite import run_checks
from tests.conformance.conformance_rig import offer, subject
from tests.conformance.faults import (
    CONFORMING,
    ForgetsEpochs,
    NeverDelivers,
    ProviderParts,
    SaysAnything,
    example,
)

HASTY = Bounds(answer=3.0, state=0.3, drain=0.3)


async def found(given: Subject, check: Check) -> Result:
    (result,) = [result async for result in run_checks(given, [check])]
    return result


async def test_the_first_error_and_the_leftover_machines_are_reported(tmp_path: Path) -> None:
    """A machine that cannot be deleted does not hide why its check failed."""
    async with subject(tmp_path, ProviderParts("", shop=NeverDelivers), bounds=HASTY) as given:
        result = await found(given, lifecycle.full_lifecycle)
        left = await given.leftover_machines()
    assert result.observed == "m-2 is CREATING and not IDLE after 0.3 s"
    assert left == {"m-2": "CREATING"}
    assert "m-2 (CREATING)" in report.leftover_line(left)


async def test_the_cheapest_machines_are_used(tmp_path: Path) -> None:
    """Machines of a real provider are billed."""
    async with subject(tmp_path, CONFORMING) as given:
        assert await given.speculative() == ["m-2", "m-1", "m-0"]


async def test_reports_escape_the_providers_messages(tmp_path: Path) -> None:
    """On one line, and as valid XML."""
    async with subject(tmp_path, ProviderParts("", provider=SaysAnything)) as given:
        result = await found(given, fencing.new_epoch)
    assert result.observed == (
        r"Create of m-2 should succeed but returned INTERNAL (\x00 \x1b[31m ]]> <é>\n\ufffe)"
    )
    failure = Xml.fromstring(report.as_junit([result], "x")).find(".//failure")
    assert failure is not None
    assert failure.get("message") == result.observed


@pytest.mark.parametrize(
    ("wrong", "seen"),
    [
        ({"id": "m" * 37}, "is not 1 to 36 of a-z, 0-9, '-' and '.'"),
        ({"id": "I_0ABC"}, "as in a Node name (DNS-1123)"),
        ({"id": "i-.x"}, "as in a Node name (DNS-1123)"),
        (
            {"state": wire.CONFIGURED, "cluster": "c", "host": wire.HostRef()},
            "is CONFIGURED but has no host",
        ),
        ({"resources": wire.Resources(resources={"cpu": "four"})}, "resources: cpu: 'four'"),
    ],
)
async def test_a_machine_that_no_shard_accepts_is_detected(
    tmp_path: Path, wrong: dict[str, object], seen: str
) -> None:
    """A conforming provider has usable machines."""

    class Sells(example.Store):  # type: ignore[misc]
        def save(self, machine: wire.Machine, *more: object) -> None:
            odd = offer(0)
            for name, value in wrong.items():
                odd.ClearField(name)  # type: ignore[arg-type]
                odd.MergeFrom(wire.Machine(**{name: value}))  # type: ignore[arg-type]
            super().save(odd if machine.id == "m-0" else machine, *more)

    async with subject(tmp_path, ProviderParts("", store=Sells)) as given:
        result = await found(given, reading.well_formed)
    assert result.outcome is CheckOutcome.FAILED
    assert seen in result.observed


async def test_an_epoch_that_is_lost_in_a_crash_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replaced shard stays fenced after a crash of the provider."""

    async def restart() -> None:
        monkeypatch.setattr(ForgetsEpochs, "restarted", True)

    async with subject(tmp_path, ProviderParts("", store=ForgetsEpochs)) as given:
        given.restart = restart
        result = await found(given, crash.fencing_survives)
    assert result.observed == "epoch 4 after epoch 5 and a crash was accepted"
