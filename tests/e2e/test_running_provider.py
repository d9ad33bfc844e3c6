"""Runs with a provider that the harness did not start: the guide's, and one that shares no code
with BigFleet's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from loaddriver.errors import ExitCode
from tests.conformance.example import PATH, load
from tests.run.run_rig import machines, smoke
from tests.support.guides import commands
from tests.support.ports import free_address
from tests.support.scaletest import ROOT, TINY, Scaletest, end_all
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

GUIDE = "run-your-provider.md"
LISTEN, OBSERVE, FOLDER = "127.0.0.1:7790", "127.0.0.1:7791", "build/provider"


@dataclass(frozen=True)
class Place:
    """Where a test does what the guide does elsewhere."""

    folder: Path
    listen: str
    observe: str

    def of_guide(self, program: str) -> list[str]:
        """The words after `program` of the guide's one command of it."""
        [words] = commands(GUIDE, program)
        replaced = {LISTEN: self.listen, OBSERVE: self.observe}
        named = [replaced.get(word, word) for word in words if word != "&"]
        return [word.replace(FOLDER, str(self.folder / "provider")) for word in named]

    def call(self, program: str) -> None:
        """Run the guide's command to its end."""
        command = [sys.executable, "-m", *program.split(), *self.of_guide(program)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    def run(self, results: str, *more: str) -> Scaletest:
        """The guide's run, which has ended."""
        tempdir = self.folder / f"tmp-{results}"
        tempdir.mkdir()
        given = (*self.of_guide("loaddriver run"), *more)
        made = Scaletest(self.folder / results, *given, tempdir=tempdir)
        made.exit_code()
        return made


@contextmanager
def process(log: Path, *command: str) -> Iterator[None]:
    """A process of its own that has said something; it is killed at the end."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            wait_until(lambda: bool(log.read_bytes()) or child.poll() is not None, "its first line")
            assert child.poll() is None, log.read_text()
            yield
        finally:
            child.kill()
            child.wait()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    try:
        yield Place(tmp_path, free_address(), free_address())
    finally:
        end_all()


def check_bound(run: Scaletest) -> dict[str, Any]:
    """The summary of a run whose pods all got machines, and whose parts agree. Another test may
    keep the machine busy, which voids a run.
    """
    assert run.exit_code() in (ExitCode.PASS, ExitCode.GATE_MISSED, ExitCode.INVALID_RUN), (
        run.output
    )
    summary = run.summary()
    pods = summary["pods"]
    assert pods["bound"] + pods["withdrawn"] == pods["created"] >= 40
    assert summary["machines"]["configured"] >= 1
    assert (summary["audit"]["differences"], summary["audit"]["found"]) == (0, [])
    found = summary["components"]
    assert (found["incidents"], found["unforeseenErrors"], found["ordersDropped"]) == (0, 0, 0)
    assert not run.left_overs()
    return summary


def test_the_guides_lines_run_smoke_with_a_provider_that_they_start(place: Place) -> None:
    """The summary says which it was, its CPU is known, and the harness starts no other."""
    place.call("bigfleet certs")
    place.call("loaddriver inventory")
    started = ("-m", "bigfleet", "provider", *place.of_guide("bigfleet provider"))
    with process(place.folder / "provider.log", *started):
        run = place.run("results")
        again = place.run("again")
    summary = check_bound(run)
    used = summary["provenance"]["provider"]
    assert (used["address"], used["name"], used["cpuMeasured"]) == (place.listen, "kwok", True)
    assert used["machines"] == len(machines(smoke()))
    assert summary["resources"]["components"]["provider"]["cpuSeconds"] > 0
    assert summary["notApplicable"] is None
    assert not (run.folder / "logs" / "provider.log").exists()
    assert not list((place.folder / "provider" / "clusters").iterdir())
    assert again.exit_code() == ExitCode.USAGE
    assert "machines are in use, such as" in again.output
    assert not any(again.results.glob("*"))


def test_a_provider_that_has_nothing_but_the_blob_joins_its_machines(place: Place) -> None:
    """The example of the guide for writers of providers, with the machines of the profile."""
    place.call("bigfleet certs")
    state = place.folder / "machines.db"
    offer(state)
    identity = place.folder / "provider" / "identities" / "provider-kwok"
    example = (str(PATH), place.listen, str(state), str(identity))
    with process(place.folder / "provider.log", *example):
        summary = check_bound(place.run("results", *TINY))
    used = summary["provenance"]["provider"]
    assert (used["name"], used["machines"]) == ("shop", len(machines(smoke(*TINY[1::2]))))


def offer(state: Path) -> None:
    """Let the example have the machines of the profile's fleet."""
    store = load().Store(state)
    for each in machines(smoke(*TINY[1::2])):
        machine = wire.Machine(
            id=each.id,
            state=wire.MachineState.Value(each.state),
            instance_type=each.instance_type,
            zone=each.zone,
            capacity_type=wire.CapacityType.Value(each.capacity_type),
            price_per_hour=each.price_per_hour,
            resources=wire.Resources(resources=each.resources),
            labels=each.labels,
        )
        if machine.state == wire.IDLE:
            machine.host.provider, machine.host.ref = "shop", f"rack-7/{each.id}"
        store.save(machine, "", b"", 0)
    store.db.close()
