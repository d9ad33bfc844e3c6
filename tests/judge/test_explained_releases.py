"""Which demand explains that a machine goes: that of the pods that it could serve."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from loaddriver.judge.stability import stability_section
from loaddriver.plan.manifests import ZONE_KEY
from loaddriver.profile.archetypes import Toleration
from loaddriver.record.journal import Event
from loaddriver.sizing.fit import PodRequirements
from loaddriver.sizing.inventory import InventoryTaint
from tests.judge.fleet_rig import ONE_CORE, fleet, journal, life, machine, observed, state
from tests.judge.judge_rig import at, facts, row


def released(own: PodRequirements, *, more: int, fewer: int, name: str = "m1") -> int | None:
    """Whether the release of a machine of 4 cores is unexplained (1) or not (0): of m1, or of
    `spot1`, which has a taint. Of two pods with the requirements `own` this many are `fewer` by
    then, and `more` pods of one core that tolerate nothing have come since.
    """
    tainted = msgspec.structs.replace(machine("spot1"), taints=(SPOT,))
    known = fleet(machine("m1"), tainted, needs={("c0", "web"): ONE_CORE, ("c0", "db"): own})
    rows = [
        *(row(f"l{n}", 55, 56, workload="web") for n in range(more)),
        *(row(f"d{n}", 0, 1, deleted=50 if n < fewer else None, workload="db") for n in range(2)),
    ]
    story = journal(*life(name, 10, 60))
    section = stability_section(facts(fleet=known), [observed()], rows, story)
    assert section is not None
    return section.released_unexplained


SPOT = InventoryTaint(key="spot", effect="NoSchedule")
TOLERANT = replace(ONE_CORE, tolerations=(Toleration(key="spot"),))


def test_less_demand_for_machines_of_its_kind_explains_one_whatever_other_demand_does() -> None:
    """Pods that do not tolerate its taint have no use for it; without a taint they have."""
    assert released(TOLERANT, more=9, fewer=2, name="spot1") == 0
    assert released(TOLERANT, more=9, fewer=1, name="spot1") == 1
    assert released(TOLERANT, more=9, fewer=2, name="m1") == 1


def test_less_demand_for_machines_of_other_kinds_does_not_explain_one() -> None:
    """Of pods that do not tolerate its taint, select others, or request what it does not have."""
    elsewhere = replace(ONE_CORE, labels=((ZONE_KEY, ("b",)),))
    with_gpu = replace(ONE_CORE, requests=(*ONE_CORE.requests, ("nvidia.com/gpu", 1000)))
    assert released(ONE_CORE, more=0, fewer=2, name="spot1") == 1
    for requirements, unexplained in ((elsewhere, 1), (with_gpu, 1), (ONE_CORE, 0)):
        assert released(requirements, more=0, fewer=2) == unexplained


def test_a_machine_may_go_for_a_pod_that_is_larger_than_itself() -> None:
    """What runs on it moves to the room which that one leaves elsewhere."""
    large = replace(ONE_CORE, requests=(("cpu", 16_000), ("pods", 1000)))
    assert released(large, more=9, fewer=1) == 0
    assert released(large, more=18, fewer=1) == 1


def test_a_machine_that_never_joined_is_held_against_the_cluster_it_was_bought_for() -> None:
    """Demand that falls in another cluster does not explain that nobody used it."""
    story = [
        Event(at=at(9.9) / 1e6, event="decided", machine="m1", action="Provision", cluster="c0"),
        state("m1", 10, "CREATING", cluster=""),
        state("m1", 15, "IDLE", cluster=""),
        state("m1", 58, "DELETING", cluster=""),
        state("m1", 60, "SPECULATIVE", cluster=""),
    ]
    known = fleet(machine("m1"), needs={(name, "web"): ONE_CORE for name in ("c0", "c1")})
    for cluster, unexplained in (("c0", 0), ("c1", 1)):
        rows = [row(f"u{n}", 0, 1, deleted=50, workload="web", cluster=cluster) for n in range(4)]
        section = stability_section(facts(fleet=known), [observed()], rows, journal(*story))
        assert section is not None
        assert section.released_unexplained == unexplained
