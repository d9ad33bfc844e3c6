"""Several providers of one fleet, and what happens to BigFleet while the load runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bigfleet.api.auth.identity import Identity, Principal
from loaddriver.errors import ProfileError
from loaddriver.profile.loading import load_profile
from loaddriver.run.bigfleet_roles import check_faults, fleet_roles, provider_roles
from loaddriver.run.chart_values import chart_values
from loaddriver.run.fleet_changes import FleetChanges
from loaddriver.run.shard_parts import most_uneven
from loaddriver.sizing.inventory import (
    InventoryMachine,
    fleet_inventory,
    machines_by_provider,
)
from loaddriver.substrates.base import Cluster, Endpoint, RoleSpec
from tests.loaddriver.load_rig import PROFILES, planned, shipped
from tests.support.waiting import eventually

HALL = "{name: hall, capacityTypes: [bareMetal]}"
CLOUD = "{name: cloud, capacityTypes: [onDemand, spot]}"
ONE_KILLED = "faults=[{role: shard-0, atSeconds: 0, downSeconds: 0}]"
ONE_JOINS = ("bigfleet.coordinators=1", "bigfleet.joiningShards={number: 1, atSeconds: 0}")
LEAVES = "bigfleet.leavingShard={{shard: {}, atSeconds: {}}}"


def clusters(*names: str) -> list[Cluster]:
    """Clusters that are only named."""
    return [Cluster(name, "https://127.0.0.1:1", {}, None) for name in names]


def parts(*providers: str) -> dict[str, int]:
    """The number of machines of each provider of dev-50's fleet."""
    profile, _, need = planned("dev-50", f"fleet.providers=[{', '.join(providers)}]")
    machines = fleet_inventory(profile, need)
    found = machines_by_provider(profile.settings.fleet.providers, machines)
    assert sum(map(len, found.values())) == len(machines)
    return {name: len(part) for name, part in found.items()}


def test_each_machine_is_in_the_part_of_one_provider() -> None:
    found = parts(HALL, CLOUD)
    assert found.keys() == {"hall", "cloud"}
    assert all(found.values())


@pytest.mark.parametrize(
    ("providers", "why"),
    [
        ([HALL], "none has onDemand machines of"),
        ([HALL, CLOUD, CLOUD.replace("cloud", "other")], "cloud and other have onDemand machines"),
        ([HALL, CLOUD, "{name: far, capacityTypes: [reserved]}"], "far has no machines"),
    ],
    ids=["nobody's", "two providers'", "no machines"],
)
def test_parts_that_do_not_divide_the_fleet_are_refused(providers: list[str], why: str) -> None:
    with pytest.raises(ProfileError, match=why):
        parts(*providers)


def test_a_shard_is_given_all_providers_each_with_a_name_and_an_inventory() -> None:
    settings = shipped("dev-50", f"fleet.providers=[{HALL}, {CLOUD}]").settings
    hall, cloud = provider_roles(settings, Path("scratch"))
    assert (hall.name, cloud.name) == ("provider-hall", "provider-cloud")
    assert hall.inputs["inventory"] != cloud.inputs["inventory"]
    for role, name in ((hall, "hall"), (cloud, "cloud")):
        assert role.arguments[role.arguments.index("--name") + 1] == name
        assert role.peer_identity == Principal("provider", name)
    shard = fleet_roles(settings, clusters("c1", "c2"), Path("scratch"))["shard-0"]
    given = [
        b for a, b in zip(shard.arguments, shard.arguments[1:], strict=False) if a == "--provider"
    ]
    assert given == ["{provider-hall/listen}", "{provider-cloud/listen}"]


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (("faults=[{role: shard-0, atSeconds: 50, downSeconds: 11}]",), "it must end within"),
        (
            (
                "faults=[{role: shard-0, atSeconds: 5, downSeconds: 9}, "
                "{role: shard-0, atSeconds: 7, downSeconds: 1}]",
            ),
            "begins while shard-0 is still down",
        ),
        (("bigfleet.joiningShards={number: 1, atSeconds: 1}",), "need a coordinator"),
        ((*ONE_JOINS[:1], ONE_JOINS[1].replace(": 0}", ": 99}")), "is after the soak's end"),
        (("system=none", ONE_KILLED, "anchors=off"), "is of BigFleet's roles"),
        (("bigfleet.leavingShard={shard: shard-0, atSeconds: 1}",), "leaves no shard"),
        ((*ONE_JOINS, LEAVES.format("shard-2", 1)), "there are shard-0, shard-1"),
        ((*ONE_JOINS, LEAVES.format("shard-1", 0)), "it has not joined then"),
        ((*ONE_JOINS, LEAVES.format("shard-0", 99)), "is after the soak's end"),
        ((f"fleet.providers=[{HALL}, {HALL}]",), "'hall' is a duplicate"),
    ],
)
def test_changes_that_cannot_happen_are_named(overrides: tuple[str, ...], why: str) -> None:
    with pytest.raises(ProfileError, match=why):
        load_profile("dev-50", PROFILES, overrides)


def test_a_fault_of_a_role_that_nobody_runs_names_the_nearest() -> None:
    settings = shipped("dev-50", ONE_KILLED.replace("shard-0", "shard-9")).settings
    with pytest.raises(ProfileError, match="no such role; did you mean shard-0"):
        check_faults(settings)


@pytest.mark.parametrize("name", ["providers-50", "shards-grow"])
def test_the_chart_says_what_it_cannot_run(name: str) -> None:
    with pytest.raises(ProfileError, match="charts/scaletest cannot have"):
        chart_values(shipped(name), (), None)


class Roles:
    """Records what is done to roles, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    async def kill_role(self, name: str) -> None:
        """Note it."""
        self.done.append(("kill", name))

    async def start_role(self, role: RoleSpec) -> Endpoint:
        """Note it."""
        self.done.append(("start", role.name))
        return Endpoint(role.name, None, Path())

    def identity(self, name: Principal) -> Identity:
        """Nobody asks for it."""
        raise AssertionError(name)


async def test_changes_begin_with_the_soak_and_are_counted() -> None:
    """A gate on their number fails if one of them did not happen."""
    settings = shipped("dev-50", ONE_KILLED, *ONE_JOINS).settings
    roles, joined, begin = Roles(), list[Endpoint](), asyncio.Event()
    specs = fleet_roles(settings, clusters("c1", "c2"), Path())
    changes = FleetChanges(settings, roles, specs, joined.append)
    playing = asyncio.create_task(changes.play(begin, lambda _: None))
    await asyncio.sleep(0)
    assert not roles.done
    begin.set()
    wanted = {"rolesKilled": 1, "rolesRestarted": 1, "shardsJoined": 1, "shardsLeft": 0}
    await eventually(lambda: changes.numbers() == wanted)
    playing.cancel()
    assert [each for each in roles.done if each[1] == "shard-0"] == [
        ("kill", "shard-0"),
        ("start", "shard-0"),
    ]
    assert [each.name for each in joined] == ["shard-1"]


def test_operators_are_not_told_of_shards_that_do_not_run_yet() -> None:
    """Those redirect them later."""
    settings = shipped("dev-50", *ONE_JOINS).settings
    operator = fleet_roles(settings, clusters("c1"), Path())["c1/operator"]
    assert operator.arguments[operator.arguments.index("--shard") + 1] == "{shard-0/listen}"


def test_the_fleet_has_a_part_for_each_shard_that_joins() -> None:
    alone, _, need = planned("dev-50")
    growing, _, same = planned("dev-50", *ONE_JOINS)
    assert len(fleet_inventory(growing, same)) == 2 * len(fleet_inventory(alone, need))


def machine(rack: str, instance_type: str) -> InventoryMachine:
    """A machine of which only place and kind matter."""
    return InventoryMachine(
        id=f"{rack}-{instance_type}",
        state="IDLE",
        instance_type=instance_type,
        zone="a",
        rack=rack,
        capacity_type="BARE_METAL",
        price_per_hour=0.0,
        interruption_probability=0.0,
        resources={},
        labels={},
    )


def test_parts_are_even_if_each_kind_is() -> None:
    """A shard with all racks of one kind, and none of another, may have half of all machines."""
    machines = [machine(f"{kind}{n}", kind) for kind in "ab" for n in range(4)]
    by_kind = {each.rack: f"shard-{each.instance_type == 'b':d}" for each in machines}
    in_turn = {each.rack: f"shard-{n % 2}" for n, each in enumerate(machines)}
    shards = ("shard-0", "shard-1")
    assert most_uneven(machines, by_kind, shards) == 1.0
    assert most_uneven(machines, in_turn, shards) == 0.0
    assert most_uneven(machines, {}, shards) == 1.0, "what nobody owns is in no part"
