"""Which machines meet which conditions, as Kubernetes' node affinity and tolerations have it."""

from __future__ import annotations

import pytest

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.fit.matching import Matcher, accepts, placement_requirements, tolerates
from bigfleet.engine.snapshot import Flavour
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import CapacityType
from bigfleet.model.need import Operator, Requirement, Taint, Toleration
from tests.engine.engine_pods import outcome, pods
from tests.engine.engine_rig import EVENLY_BY_ZONE, ZONE, idle, need_of, same

IN_A = Requirement(ZONE, Operator.IN, ("a", "c"))
NOT_A = Requirement(ZONE, Operator.NOT_IN, ("a", "c"))
THERE = Requirement(ZONE, Operator.EXISTS)
AWAY = Requirement(ZONE, Operator.DOES_NOT_EXIST)


def accepted(requirements: tuple[Requirement, ...], key: str, values: list[str]) -> list[str]:
    """Of machines whose label `key` has these values ("" for none), those that qualify; matched for
    all flavours at once and of each machine, which must agree.
    """
    labels: list[dict[str, str]] = [{key: value} if value else {} for value in values]
    flavours = [Flavour(each, CapacityType.SPOT, 1.0, 0.0, {}) for each in labels]
    matcher = Matcher(FlavourColumns(flavours))
    alone = [v for v, each in zip(values, labels, strict=True) if accepts(requirements, each)]
    for _ in range(2):  # the second answer is the remembered one
        flags = matcher.meeting(requirements)
        assert [value for value, flag in zip(values, flags, strict=True) if flag] == alone
    return alone


@pytest.mark.parametrize(
    ("requirements", "qualify"),
    [
        ((), ["", "a", "b", "c"]),
        ((IN_A,), ["a", "c"]),
        ((Requirement(ZONE, Operator.IN, ()),), []),
        ((NOT_A,), ["", "b"]),
        ((THERE,), ["a", "b", "c"]),
        ((AWAY,), [""]),
        ((same(ZONE),), ["a", "b", "c"]),
        ((NOT_A, THERE), ["b"]),
        ((IN_A, AWAY), []),
    ],
)
def test_operators(requirements: tuple[Requirement, ...], qualify: list[str]) -> None:
    """NotIn takes the absent key, In and Same do not; several conditions all hold."""
    assert accepted(requirements, ZONE, ["", "a", "b", "c"]) == qualify


@pytest.mark.parametrize(
    ("operator", "than", "qualify"),
    [
        (Operator.GREATER_THAN, "8", ["9", "10", "096"]),
        (Operator.LESS_THAN, "9", ["-3", "8"]),
        (Operator.LESS_THAN, "-3", []),
    ],
)
def test_gt_and_lt_compare_integers_only(operator: Operator, than: str, qualify: list[str]) -> None:
    """As numbers, not as text; a value that is none, or is absent, never qualifies."""
    values = ["", "-3", "8", "9", "10", "096", "ten", "9.5", "1_0", "99999999999999999999"]
    assert accepted((Requirement("cores", operator, (than,)),), "cores", values) == qualify


def test_every_machine_has_a_host_name_that_no_pod_can_know_beforehand() -> None:
    """A pod that requires a hostname fits nowhere; excluding hostnames changes nothing."""
    by_name = Requirement(HOSTNAME_LABEL, Operator.IN, ("node-7",))
    others = Requirement(HOSTNAME_LABEL, Operator.NOT_IN, ("node-7",))
    any_host = Requirement(HOSTNAME_LABEL, Operator.EXISTS)
    assert accepted((by_name,), ZONE, ["", "a"]) == []
    assert accepted((others, any_host), ZONE, ["", "a"]) == ["", "a"]


def test_hard_spread_wants_its_key() -> None:
    """A machine in no zone takes no pod that is spread over zones; Same makes spread void."""
    spread = placement_requirements(need_of(1, spread=EVENLY_BY_ZONE).profile)
    assert not accepts(spread, {})
    assert accepts(spread, {ZONE: "a"})
    assert accepts(
        placement_requirements(need_of(1, same("rack"), spread=EVENLY_BY_ZONE).profile),
        {"rack": "r"},
    )


def test_alternatives_are_an_or_of_ands() -> None:
    """One node-affinity term is enough, all conditions of it; what is required holds besides."""
    arm = Requirement("arch", Operator.IN, ("arm",))
    specs = [
        idle("a-arm", labels={ZONE: "a", "arch": "arm"}),
        idle("b-arm", labels={ZONE: "b", "arch": "arm"}),
        idle("b-old", labels={ZONE: "b", "age": "9"}),
        idle("c-old", labels={ZONE: "c", "age": "9"}),
        idle("c-new", labels={ZONE: "c", "age": "2"}),
    ]
    old = Requirement("age", Operator.GREATER_THAN, ("5",))
    either = ((IN_A, arm), (old,))
    assert set(outcome(specs, pods((99, 1), alternatives=either)).places) == {
        "a-arm", "b-old", "c-old",
    }  # fmt: skip
    in_c = (Requirement(ZONE, Operator.IN, ("c",)),)
    assert set(outcome(specs, pods((99, 1), requirements=in_c, alternatives=either)).places) == {
        "c-old"
    }


DEDICATED = Taint("dedicated", "batch", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("dedicated", False, "batch", "NoSchedule"), True),
        (Toleration("dedicated", False, "batch", ""), True),
        (Toleration("dedicated", True, "", "NoSchedule"), True),
        (Toleration("", True, "", ""), True),
        (Toleration("dedicated", False, "web", "NoSchedule"), False),
        (Toleration("dedicated", False, "batch", "NoExecute"), False),
        (Toleration("other", True, "", ""), False),
        (Toleration("", False, "web", ""), False),
    ],
)
def test_a_toleration_names_key_value_and_effect(toleration: Toleration, tolerated: bool) -> None:
    """What it leaves open matches everything."""
    assert tolerates((toleration,), (DEDICATED,)) is tolerated


def test_tainted_machines_are_for_pods_that_tolerate_all_their_taints() -> None:
    """Others neither use nor acquire them; PreferNoSchedule does not filter."""
    evicting = Taint("maintenance", "", "NoExecute")
    specs = [
        idle("clean", price=9),
        idle("dedicated", taints=(DEDICATED,)),
        idle("twice", taints=(DEDICATED, evicting)),
        idle("soft", taints=(Taint("slow", "", "PreferNoSchedule"),)),
    ]
    assert set(outcome(specs, pods((99, 1))).places) == {"clean", "soft"}
    batch = Toleration("dedicated", True, "", "")
    assert set(outcome(specs, pods((99, 1), tolerations=(batch,))).places) == {
        "clean", "soft", "dedicated",
    }  # fmt: skip
