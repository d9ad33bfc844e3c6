"""A run whose fleet has three providers, one of which dies and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scaletest import Scaletest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1000)]

PROVIDERS = (
    "[{name: hall, capacityTypes: [bareMetal]}, {name: cloud, capacityTypes: [onDemand]}, "
    "{name: spot, capacityTypes: [spot]}]"
)
# More pods than the owned machines have room for, while the cheapest of the others are not there.
BURST = "[{phase: soak, atSeconds: 6, archetype: tiny-stateless, pods: 300, durationSeconds: 50}]"


@pytest.mark.alone
def test_what_a_dead_provider_would_have_served_others_serve(tmp_path: Path) -> None:
    """All pods are bound, nobody is disturbed, and in the end all parts of the fleet agree."""
    settings = {
        "fleet.providers": PROVIDERS,
        "fleet.idleFactor": "0.5",
        "fleet.spotFactor": "3",
        "faults": "[{role: provider-spot, atSeconds: 1, downSeconds: 25}]",
        "bursts": BURST,
        "soak.seconds": "60",
    }
    chosen = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    run = Scaletest.sound(tmp_path, "smoke", *chosen)
    summary = run.summary()
    assert run.exit_code() in (0, 3), run.output  # smoke's limits on waits are not for this
    found = summary["components"]
    assert (found["rolesKilled"], found["rolesRestarted"]) == (1, 1)
    pods = summary["pods"]
    assert pods["created"] - pods["withdrawn"] == pods["bound"] >= 500
    assert summary["stability"]["disrupted"] == 0
    assert (summary["audit"]["differences"], summary["audit"]["found"]) == (0, [])
    assert (found["incidents"], found["unforeseenErrors"]) == (0, 0)
    assert found["actions"]["Provision"] >= 1
    assert not run.left_overs()
