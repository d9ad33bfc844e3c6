"""A fleet without an autoscaler is divided among clusters; a foreign Node has a machine's price."""

from __future__ import annotations

from collections import Counter

from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, RACK_KEY, ZONE_KEY
from loaddriver.run.static_fleet import fleet_nodes, machine_like
from tests.run.run_rig import machines, smoke

FLEET = machines(smoke())


def test_every_machine_is_a_node_of_exactly_one_cluster() -> None:
    nodes = fleet_nodes(FLEET, ["c1", "c2"])
    assert sorted(node.machine.id for node in nodes) == sorted(machine.id for machine in FLEET)
    counts = Counter(node.cluster for node in nodes)
    assert min(counts.values()) > len(FLEET) / 3


def test_no_rack_is_split_between_clusters() -> None:
    """A gang needs the whole of one."""
    owners = {(node.machine.rack, node.cluster) for node in fleet_nodes(FLEET, ["c1", "c2", "c3"])}
    assert len({rack for rack, _ in owners}) == len(owners)


def test_a_foreign_node_costs_what_the_dearest_machine_of_its_type_and_zone_costs() -> None:
    """Unless it says of which capacity type it is, it may be any."""
    one = max(FLEET, key=lambda machine: machine.price_per_hour)
    labels = {INSTANCE_TYPE_KEY: one.instance_type, ZONE_KEY: one.zone, RACK_KEY: "r-9"}
    found = machine_like("theirs", labels, FLEET)
    assert found is not None
    assert (found.id, found.rack, found.price_per_hour) == ("theirs", "r-9", one.price_per_hour)


def test_a_node_like_no_machine_of_the_fleet_has_no_price() -> None:
    assert machine_like("theirs", {INSTANCE_TYPE_KEY: "unheard-of"}, FLEET) is None
