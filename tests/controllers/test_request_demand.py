"""What a CapacityRequest adds to its cluster's demand: a profile, a group, a size."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.controllers.operator.request_demand import (
    CoLocation,
    RequestDemand,
    RequestSpec,
    demand_of,
)
from bigfleet.kube.pod_types import LabelSelector, SelectorRequirement
from bigfleet.model.errors import InvalidInput
from bigfleet.model.group import ADDITIONAL, PLAIN, Group, PodGroup, group_text
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Operator, Requirement, Spread, Toleration

_ZONE, _RACK = "topology.kubernetes.io/zone", "topology.bigfleet/rack"
_WEB = {"matchLabels": {"app": "web"}}


def _demand(namespace: str = "team", **spec: Any) -> RequestDemand:
    raw = {"resources": {"cpu": "1", "pods": "1"}, "priority": 0, **spec}
    return demand_of(namespace, msgspec.json.decode(msgspec.json.encode(raw), type=RequestSpec))


def _term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def _spread(key: str = _ZONE, **more: Any) -> dict[str, Any]:
    term = {"topologyKey": key, "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    return term | {"labelSelector": _WEB} | more


def _apart(*keys: str, selector: dict[str, Any] = _WEB) -> dict[str, Any]:
    return {"topologyKeys": list(keys), "labelSelector": selector}


def test_a_plain_request_has_no_group_and_no_more_than_its_size() -> None:
    plain = _demand()
    assert (plain.group, plain.unit) == (PLAIN, (("cpu", 1000), ("pods", 1000)))
    assert plain.profile.same_key is None
    assert not plain.profile.never_preempts


def test_a_gang_requires_one_domain_on_the_wire_and_other_requests_do_not() -> None:
    gang = _demand(coLocation={"topologyKey": _RACK, "labelSelector": _WEB})
    assert gang.profile.same_key == _RACK
    assert gang.group == PodGroup('["team","topology.bigfleet/rack",[["app","In",["web"]]]]')


def test_labels_are_compared_and_alternatives_kept_apart() -> None:
    found = _demand(
        requirements=[_term("cores", "Gt", "15"), _term("cores", "Lt", "65")],
        nodeSelectorTerms=[
            {"matchExpressions": [_term("zone", "In", "b")]},
            {"matchExpressions": [_term("gpu", "Exists"), _term("zone", "In", "a")]},
        ],
    ).profile
    assert found.requirements == (
        Requirement("cores", Operator.GREATER_THAN, ("15",)),
        Requirement("cores", Operator.LESS_THAN, ("65",)),
    )
    assert found.alternatives == (
        (Requirement("gpu", Operator.EXISTS), Requirement("zone", Operator.IN, ("a",))),
        (Requirement("zone", Operator.IN, ("b",)),),
    )


def test_tolerations_and_preemption_policy_make_another_profile() -> None:
    tolerations = [{"key": "gpu", "value": "a", "effect": "NoSchedule"}, {"operator": "Exists"}]
    found = _demand(tolerations=tolerations, preemptionPolicy="Never").profile
    assert found.tolerations == (
        Toleration("", exists=True, value="", effect=""),
        Toleration("gpu", exists=False, value="a", effect="NoSchedule"),
    )
    assert found.never_preempts
    usual = _demand(preemptionPolicy="PreemptLowerPriority")
    assert usual.profile == _demand().profile


def test_workloads_that_spread_are_needs_of_their_own() -> None:
    found = _demand(
        topologySpread=[
            _spread(minDomains=3, nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor"),
            _spread(HOSTNAME_LABEL),
        ]
    )
    assert found.group == PodGroup(
        '["team",[["app","In",["web"]]],"kubernetes.io/hostname","topology.kubernetes.io/zone"]'
    )
    assert found.profile.spread == (
        Spread(HOSTNAME_LABEL, 2, hard=True),
        Spread(_ZONE, 2, True, 3, ignores_node_affinity=True, honors_node_taints=True),
    )
    others: dict[str, Any] = {"labelSelector": {"matchLabels": {"app": "cache"}}}
    groups = {
        _demand(topologySpread=[_spread()]).group,
        _demand(topologySpread=[_spread(**others)]).group,
        _demand("other", topologySpread=[_spread()]).group,
        _demand(topologySpread=[_spread(), _spread(HOSTNAME_LABEL, **others)]).group,
        found.group,
    }
    assert len(groups) == 5


def test_a_soft_spread_only_prefers_and_forms_no_group() -> None:
    soft = _demand(topologySpread=[_spread(maxSkew=5, whenUnsatisfiable="ScheduleAnyway")])
    assert soft.group == PLAIN
    assert soft.profile.spread == (Spread(_ZONE, 1, hard=False),)


def test_workloads_that_repel_themselves_are_needs_of_their_own() -> None:
    found = _demand(antiAffinity=_apart(_ZONE, HOSTNAME_LABEL))
    assert found.profile.anti_affinity == (HOSTNAME_LABEL, _ZONE)
    both = _demand(antiAffinity=_apart(HOSTNAME_LABEL), topologySpread=[_spread()])
    assert both.group == found.group
    assert both.profile != found.profile, "they are told apart by what they ask for"
    expressions = {"matchExpressions": [_term("app", "In", "web")]}
    written = _demand(antiAffinity=_apart(HOSTNAME_LABEL, _ZONE, selector=expressions))
    assert written.group == found.group, "a selector means the same however it is written"


def test_pods_that_want_the_same_ports_repel_each_other_in_all_namespaces() -> None:
    first = _demand(hostPorts=[{"port": 80}, {"port": 53, "protocol": "UDP"}])
    second = _demand(
        "other", hostPorts=[{"port": 53, "protocol": "UDP"}, {"port": 80, "hostIP": "0.0.0.0"}]
    )
    both = PodGroup('[{"hostPorts":[[53,"UDP",""],[80,"TCP",""]]}]')
    assert first.group == second.group == both
    assert first.profile.anti_affinity == (HOSTNAME_LABEL,)
    third = _demand(hostPorts=[{"port": 80}])
    assert third.group != first.group
    spreads = _demand(hostPorts=[{"port": 80}], topologySpread=[_spread()])
    assert group_text(spreads.group).startswith('["team",')
    assert spreads.profile.anti_affinity == (HOSTNAME_LABEL,)


def test_a_gang_stays_one_group_whatever_else_it_requests() -> None:
    term = {"topologyKey": _RACK, "labelSelector": _WEB}
    gang = _demand(coLocation=term)
    more = _demand(coLocation=term, antiAffinity=_apart(HOSTNAME_LABEL), hostPorts=[{"port": 1}])
    assert more.group == gang.group
    assert more.profile.anti_affinity == (HOSTNAME_LABEL,)


def test_additional_pods_are_of_many_workloads_and_can_repel_by_machine_only() -> None:
    found = _demand(
        additional=True,
        antiAffinity=_apart(_ZONE, HOSTNAME_LABEL),
        topologySpread=[_spread()],
    )
    assert found.group == ADDITIONAL
    assert found.profile.anti_affinity == (HOSTNAME_LABEL,)
    assert found.profile.spread == ()


def _gang(namespace: str, key: str, label: str, value: str) -> Group:
    term = CoLocation(key, LabelSelector(match_labels={label: value}))
    return demand_of(namespace, RequestSpec({"cpu": "1"}, 0, co_location=term)).group


@given(st.lists(st.tuples(st.text(), st.text(), st.text(), st.text()), min_size=2, max_size=2))
def test_no_choice_of_names_makes_two_groups_one(parts: list[tuple[str, str, str, str]]) -> None:
    assert len({_gang(*part) for part in parts}) == len(set(parts))


@pytest.mark.parametrize(
    ("dollars", "bucket"),
    [(0, 1), ("0.5", 2), ("500m", 2), ("0.51", 3), (1, 3), ("1.001", 4), ("100", 10), ("9M", 27)],
)
def test_dollars_round_up_to_a_bucket(dollars: str | int, bucket: int) -> None:
    assert _demand(interruptionPenalty=dollars).profile.interruption_bucket == bucket
    assert _demand(reclamationPenalty=dollars).profile.reclamation_bucket == bucket


@pytest.mark.parametrize(
    "spec",
    [
        {"resources": {"cpu": "0"}},
        {"resources": {"cpu": "-1"}},
        {"resources": {"cpu": "lots"}},
        {"requirements": [_term("a", "Same", "b")]},
        {"requirements": [_term("a", "In")]},
        {"requirements": [_term("a", "Gt", "x")]},
        {"requirements": [_term("a", "Lt", "1", "2")]},
        {"nodeSelectorTerms": [{"matchExpressions": []}]},
        {"tolerations": [{"value": "x"}]},
        {"tolerations": [{"key": "a", "operator": "Lt", "value": "1"}]},
        {"interruptionPenalty": "-1"},
        {"resources": {"cpu": "1", "": "1"}},
        {"additional": True, "coLocation": {"topologyKey": "rack"}},
    ],
)
def test_a_request_without_sense_is_an_error(spec: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        _demand(**spec)


def test_an_expression_without_values_is_as_good_as_one_with_none() -> None:
    spec = RequestSpec({"cpu": "1"}, 0, [SelectorRequirement("a", "Exists")])
    assert demand_of("n", spec).profile == _demand(requirements=[_term("a", "Exists")]).profile
