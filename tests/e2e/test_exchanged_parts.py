"""One run of a fleet with three providers, one of which dies and comes back, and with a scheduler
of one's own. What each of them changes is looked at by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.request import Binaries
from tests.support.guides import GUIDES, commands
from tests.support.scaletest import Scaletest, end_all

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

GUIDE = "own-parts.md"
PROVIDERS = (
    "[{name: hall, capacityTypes: [bareMetal]}, {name: cloud, capacityTypes: [onDemand]}, "
    "{name: spot, capacityTypes: [spot]}]"
)
# More pods than the owned machines have room for, while the cheapest of the others are not there.
BURST = "[{phase: soak, atSeconds: 6, archetype: tiny-stateless, pods: 300, durationSeconds: 50}]"
SETTINGS = {
    "fleet.providers": PROVIDERS,
    "fleet.idleFactor": "0.5",
    "fleet.spotFactor": "3",
    "faults": "[{role: provider-spot, atSeconds: 1, downSeconds: 25}]",
    "bursts": BURST,
    "soak.seconds": "60",
}


@pytest.fixture(scope="module")
def own_scheduler(tmp_path_factory: pytest.TempPathFactory, binaries: Binaries) -> Path:
    """A kube-scheduler that is not the pinned one, though it does the same."""
    path = tmp_path_factory.mktemp("bin") / "kube-scheduler"
    path.write_text(f'#!/bin/sh\nexec {binaries.kube_scheduler} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, own_scheduler: Path) -> Iterator[Scaletest]:
    """Both commands of the guide in one run that has ended. Another test may keep the machine
    busy, which voids a run; all else must be as it should.
    """
    directory = tmp_path_factory.mktemp("exchanged")
    config = directory / "scheduler.yaml"
    [block] = re.findall(r"^```yaml\n(.*?)^```", (GUIDES / GUIDE).read_text(), re.M | re.S)
    config.write_text(block)
    component, configured = commands(GUIDE, "loaddriver run")
    given = [*component, *configured[1:]]
    for name, path in (("bin/kube-scheduler", own_scheduler), ("scheduler.yaml", config)):
        given = [each.replace(name, str(path)) for each in given]
    chosen = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    tempdir = directory / "tmp"
    tempdir.mkdir()
    made = Scaletest(directory / "results", *given, *chosen, tempdir=tempdir)
    try:
        assert made.exit_code() in (0, 3, 5), made.output
        yield made
    finally:
        end_all()


def test_what_a_dead_provider_would_have_served_others_serve(run: Scaletest) -> None:
    """All pods are bound, nobody is disturbed, and in the end all parts of the fleet agree."""
    summary = run.summary()
    found = summary["components"]
    assert (found["rolesKilled"], found["rolesRestarted"]) == (1, 1)
    pods = summary["pods"]
    assert pods["created"] - pods["withdrawn"] == pods["bound"] >= 500
    assert summary["stability"]["disrupted"] == 0
    assert (summary["audit"]["differences"], summary["audit"]["found"]) == (0, [])
    assert (found["incidents"], found["unforeseenErrors"]) == (0, 0)
    assert found["actions"]["Provision"] >= 1
    assert not run.left_overs()


def test_a_scheduler_and_its_configuration_of_ones_own_bind_the_pods(
    run: Scaletest, own_scheduler: Path
) -> None:
    """Each of the guide's commands exchanges its part only."""
    found = run.summary()
    assert found["pods"]["bound"] + found["pods"]["withdrawn"] == found["pods"]["created"] >= 40
    assert found["audit"]["boundBy"].keys() == {"scheduler"}
    log = (run.folder / "logs" / "c1" / "kube-scheduler.log").read_text()
    assert str(own_scheduler) in log.splitlines()[0]
    assert not run.left_overs()
