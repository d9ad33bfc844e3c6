"""The needs of a profile are estimated before it is planned."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from loaddriver.errors import InfrastructureError
from loaddriver.sizing.estimate import GIBIBYTE, HostCapacity, check_host_capacity, cloud_estimate
from tests.loaddriver.load_rig import shipped

SMALL = HostCapacity(cores=2, memory_available_bytes=20 * GIBIBYTE, disk_free_bytes=20 * GIBIBYTE)
LARGE_RUNGS = ("5k", "50k", "500k", "1m", "5m")


@pytest.mark.parametrize("name", LARGE_RUNGS)
def test_a_profile_too_large_for_this_machine_is_rejected_with_needs_and_cost(name: str) -> None:
    """Without planning it first, which may take long."""
    profile = shipped(name)
    with pytest.raises(InfrastructureError) as caught:
        check_host_capacity(profile, SMALL)
    sizes, price, *why = str(caught.value).splitlines()
    assert f"{profile.settings.pods:,} pods in {profile.settings.clusters:,} clusters" in sizes
    assert re.search(r"about [\d,]+ hosts of 64 vCPU and 128 GiB for \d+ minutes, \$[\d,]+", price)
    assert any("of memory, this machine has 20.0 GiB free" in line for line in why)


def test_hosts_and_cost_grow_with_the_machines() -> None:
    """Ten times the machines are about ten times the hosts."""
    needs = [cloud_estimate(shipped(name)) for name in LARGE_RUNGS]
    assert [round(each.machines, -3) for each in needs] == [6e3, 59e3, 590e3, 1180e3, 5900e3]
    assert [each.shards for each in needs] == [1, 1, 2, 3, 12]
    assert all(a.hosts < b.hosts and a.dollars < b.dollars for a, b in pairwise(needs))
    assert needs[4].hosts == pytest.approx(100 * needs[1].hosts, rel=0.1)


@pytest.mark.parametrize("name", LARGE_RUNGS)
def test_the_summary_of_a_rung_names_the_machines_that_it_needs(name: str) -> None:
    """A description must be updated when the numbers of its profile change."""
    profile = shipped(name)
    stated = re.search(r"about ([\d,]+) machines", profile.settings.description)
    assert stated is not None
    assert int(stated[1].replace(",", "")) == pytest.approx(
        cloud_estimate(profile).machines, rel=0.03
    )


def test_a_profile_that_fits_is_accepted() -> None:
    check_host_capacity(shipped("dev-500"), SMALL)
