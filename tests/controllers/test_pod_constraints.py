"""Each constraint that kube-scheduler knows, from the Pod as the API server writes it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.controllers.pod_controller.requests import request_for, unsupported_fields
from bigfleet.controllers.podspec.node_requirements import MAX_ALTERNATIVES
from bigfleet.controllers.podspec.unsupported import Unsupported

_HOST, _ZONE, _RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_ANY_MACHINE = [{"key": "node.kubernetes.io/instance-type", "operator": "Exists"}]
_WEB = {"matchLabels": {"app": "web"}}
_OTHERS = {"matchLabels": {"app": "cache"}}


def _pod(**spec: Any) -> Pod:
    """One of the pods that `_WEB` selects."""
    raw = {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "u",
            "labels": {"app": "web", "pod-template-hash": "77"},
        },
        "spec": {"containers": [{"name": "c"}], **spec},
    }
    return msgspec.json.decode(json.dumps(raw), type=Pod)


def _on_nodes(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def _labelled(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


def _named(operator: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": ["n-1"]}]}


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _exists(key: str) -> dict[str, Any]:
    return {"key": key, "operator": "Exists"}


def _near(key: str, selector: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, **({} if selector is None else {"labelSelector": selector}), **more}


def _with(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {_REQUIRED: list(terms)}}}


def _without(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {_REQUIRED: list(terms)}}}


def _spread(key: str = _ZONE, **more: Any) -> dict[str, Any]:
    term = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return term | {"labelSelector": _WEB} | more


def test_a_node_selector_and_a_single_affinity_term_are_one_set_of_requirements() -> None:
    gpu = {"key": "gpu", "operator": "DoesNotExist"}
    spec = _on_nodes(_labelled(_in("type", "m1", "m2"), gpu))
    request = request_for(_pod(nodeSelector={"zone": "a", "arch": "arm64"}, **spec))
    expected = [_in("arch", "arm64"), _in("zone", "a"), _in("type", "m1", "m2"), gpu]
    assert request["requirements"] == expected
    assert "nodeSelectorTerms" not in request


def test_several_affinity_terms_are_alternatives() -> None:
    first, second = _labelled(_in("zone", "a")), _labelled(_exists("gpu"), _in("zone", "b"))
    request = request_for(_pod(nodeSelector={"arch": "arm64"}, **_on_nodes(first, second, first)))
    assert request["requirements"] == [_in("arch", "arm64")]
    assert request["nodeSelectorTerms"] == [first, second]
    assert request_for(_pod(**_on_nodes(first, second)))["requirements"] == []


def test_numbers_are_compared_and_a_term_that_compares_with_none_is_never_met() -> None:
    more = {"key": "cores", "operator": "Gt", "values": ["15"]}
    nonsense = {"key": "cores", "operator": "Lt", "values": ["many"]}
    request = request_for(_pod(**_on_nodes(_labelled(more), _labelled(nonsense))))
    assert request["requirements"] == [more]
    with pytest.raises(Unsupported, match=r"nodeAffinity\.required"):
        request_for(_pod(**_on_nodes(_labelled(nonsense))))


@pytest.mark.parametrize(
    "term",
    [
        _named("In"),
        {},
        _named("In") | _labelled(_in("zone", "a")),
        _labelled(_in(_HOST, "n-1"), _in("zone", "a")),
    ],
)
def test_a_term_that_names_a_node_or_nothing_is_met_by_no_new_machine(term: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="no new machine can"):
        request_for(_pod(**_on_nodes(term)))
    request = request_for(_pod(**_on_nodes(term, _labelled(_in("zone", "b")))))
    assert request["requirements"] == [_in("zone", "b")]


def test_every_new_machine_is_another_than_the_node_that_must_not_be() -> None:
    other = {"key": _HOST, "operator": "NotIn", "values": ["n-1"]}
    for term in (_named("NotIn"), _labelled(other), _labelled(_exists(_HOST))):
        assert request_for(_pod(**_on_nodes(term)))["requirements"] == _ANY_MACHINE


def test_a_pod_that_runs_on_the_node_it_names_counts_as_any_other() -> None:
    """Or else nobody would seem to need its machine."""
    selector = {_HOST: "n-1", "zone": "a"}
    pod = _pod(nodeName="n-1", nodeSelector=selector, **_on_nodes(_named("In")))
    assert request_for(pod)["requirements"] == [_in("zone", "a")]
    with pytest.raises(Unsupported, match="nodeSelector"):
        request_for(_pod(nodeSelector=selector))


def test_of_very_many_alternatives_the_first_are_carried_since_each_is_enough() -> None:
    terms = [_labelled(_in("rack", f"r{number}")) for number in range(3 * MAX_ALTERNATIVES)]
    request = request_for(_pod(**_on_nodes(*terms)))
    assert request["nodeSelectorTerms"] == terms[:MAX_ALTERNATIVES]


def test_a_selector_and_an_affinity_that_contradict_each_other_get_no_request() -> None:
    spec = _on_nodes(_labelled(_in("zone", "b")))
    with pytest.raises(Unsupported, match="contradicts the nodeSelector"):
        request_for(_pod(nodeSelector={"zone": "a"}, **spec))


def test_where_volumes_can_be_is_joined_with_where_the_pod_may_run() -> None:
    own = _on_nodes(
        _labelled(_in("zone", "a", "b"), _exists("gpu")),
        _labelled(_in("zone", "c")),
        _labelled(_in("zone", "d")),
    )
    disks = [[[_in("zone", "b", "c")]], [[_in("zone", "c")], [_in("zone", "b")]]]
    request = request_for(_pod(**own), disks)
    assert request["requirements"] == [_in("zone", "b", "c")]
    assert request["nodeSelectorTerms"] == [
        _labelled(_in("zone", "b"), _exists("gpu")),
        _labelled(_in("zone", "c")),
    ]
    with pytest.raises(Unsupported, match="volumes"):
        request_for(_pod(**own), [[[_in("zone", "e")], [_in("zone", "f")]]])


def test_a_volume_that_can_be_anywhere_narrows_nothing() -> None:
    assert request_for(_pod(), [[[]]])["requirements"] == _ANY_MACHINE
    assert request_for(_pod(), [[[_in("zone", "a")], []]])["requirements"] == _ANY_MACHINE


def test_affinity_to_pods_like_itself_is_co_location() -> None:
    selector = {**_WEB, "matchExpressions": [{"key": "pod-template-hash", "operator": "Exists"}]}
    pod = _pod(**_with(_near(_RACK, selector), _near(_ZONE, _WEB)))
    request = request_for(pod)
    assert request["coLocation"] == {"topologyKey": _RACK, "labelSelector": selector}
    assert request["requirements"] == [_exists(_ZONE)], "kube-scheduler wants every key on a Node"
    assert list(unsupported_fields(pod)) == ["podAffinity.required"]


@pytest.mark.parametrize(
    "term",
    [
        _near(_ZONE, _OTHERS),
        _near(_ZONE, None),
        _near(_ZONE, _WEB, namespaces=["elsewhere"]),
        _near(_ZONE, _WEB, namespaceSelector={"matchLabels": {"team": "x"}}),
    ],
)
def test_affinity_to_others_is_left_to_the_scheduler_and_said(term: dict[str, Any]) -> None:
    pod = _pod(**_with(term))
    request = request_for(pod)
    assert "coLocation" not in request
    assert request["requirements"] == [_exists(_ZONE)]
    assert list(unsupported_fields(pod)) == ["podAffinity.required"]


def test_no_machine_is_asked_for_its_hostname_which_comes_with_the_node() -> None:
    assert request_for(_pod(**_with(_near(_HOST, _OTHERS))))["requirements"] == _ANY_MACHINE


def test_anti_affinity_to_pods_like_itself_is_carried_for_every_key() -> None:
    pod = _pod(**_without(_near(_ZONE, _WEB), _near(_HOST, _WEB, namespaces=["team", "other"])))
    request = request_for(pod)
    assert request["antiAffinity"] == {"topologyKeys": [_HOST, _ZONE], "labelSelector": _WEB}
    assert request["requirements"] == _ANY_MACHINE, "a Node without the key is no obstacle"
    assert list(unsupported_fields(pod)) == []


def test_anti_affinity_by_several_selectors_is_carried_by_what_they_have_in_common() -> None:
    version = {"matchExpressions": [_in("pod-template-hash", "77")]}
    request = request_for(_pod(**_without(_near(_HOST, _WEB), _near(_ZONE, version))))
    assert request["antiAffinity"]["labelSelector"] == {**_WEB, **version}


def test_anti_affinity_in_all_namespaces_means_the_own_one_too() -> None:
    request = request_for(_pod(**_without(_near(_HOST, _WEB, namespaceSelector={}))))
    assert request["antiAffinity"]["topologyKeys"] == [_HOST]


def test_anti_affinity_to_others_is_left_to_the_scheduler_and_said() -> None:
    pod = _pod(**_without(_near(_HOST, _OTHERS), _near(_HOST, _WEB)))
    assert request_for(pod)["antiAffinity"] == {"topologyKeys": [_HOST], "labelSelector": _WEB}
    assert list(unsupported_fields(pod)) == ["podAntiAffinity.required"]


def test_spread_is_carried_with_its_policies_and_what_is_usual_is_left_out() -> None:
    odd: dict[str, Any] = {
        "minDomains": 3,
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
    }
    usual: dict[str, Any] = {
        "minDomains": 1,
        "nodeAffinityPolicy": "Honor",
        "nodeTaintsPolicy": "Ignore",
    }
    pod = _pod(topologySpreadConstraints=[_spread(**odd), _spread(_HOST, maxSkew=2, **usual)])
    assert request_for(pod)["topologySpread"] == [_spread(**odd), _spread(_HOST, maxSkew=2)]


def test_soft_spread_is_carried_as_such() -> None:
    soft = _spread(whenUnsatisfiable="ScheduleAnyway")
    assert request_for(_pod(topologySpreadConstraints=[soft]))["topologySpread"] == [soft]


def test_match_label_keys_become_part_of_the_selector_with_the_pods_own_values() -> None:
    keys = ["pod-template-hash", "that-it-has-not"]
    [found] = request_for(_pod(topologySpreadConstraints=[_spread(matchLabelKeys=keys)]))[
        "topologySpread"
    ]
    own = [_in("pod-template-hash", "77")]
    assert found["labelSelector"] == {**_WEB, "matchExpressions": own}
    merged = _spread(labelSelector={**_WEB, "matchExpressions": own}, matchLabelKeys=keys)
    assert request_for(_pod(topologySpreadConstraints=[merged]))["topologySpread"] == [found]


def test_spread_of_other_pods_asks_for_no_more_than_a_domain() -> None:
    """Wherever the pod goes, it does not change what is counted."""
    pod = _pod(topologySpreadConstraints=[_spread(labelSelector=_OTHERS)])
    request = request_for(pod)
    assert "topologySpread" not in request
    assert request["requirements"] == [_exists(_ZONE)]
    assert list(unsupported_fields(pod)) == ["topologySpreadConstraints"]


def test_tolerations_are_carried_but_for_those_that_every_pod_is_given() -> None:
    passing = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
        for key in ("not-ready", "unreachable")
    ]
    gpu = {"key": "gpu", "value": "a100", "effect": "NoSchedule", "operator": "Equal"}
    spot = {"key": "spot", "operator": "Exists", "tolerationSeconds": 9}
    request = request_for(_pod(tolerations=[*passing, {**gpu, "operator": ""}, spot, gpu]))
    assert request["tolerations"] == [gpu, {"key": "spot", "operator": "Exists"}]
    assert "tolerations" not in request_for(_pod(tolerations=passing))


def test_who_tolerates_everything_need_not_say_what() -> None:
    tolerations = [{"key": "gpu", "operator": "Exists"}, {"operator": "Exists"}]
    assert request_for(_pod(tolerations=tolerations))["tolerations"] == [{"operator": "Exists"}]


def test_a_toleration_by_comparison_is_left_out_and_said() -> None:
    pod = _pod(tolerations=[{"key": "sla", "operator": "Gt", "value": "950"}])
    assert "tolerations" not in request_for(pod)
    assert list(unsupported_fields(pod)) == ["tolerations"]


def test_host_ports_of_whatever_runs_for_the_pods_life_are_carried() -> None:
    ports = [{"containerPort": 8080, "hostPort": 80, "protocol": "TCP"}, {"containerPort": 1}]
    udp = {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}
    initial = [
        {"name": "side", "restartPolicy": "Always", "ports": [udp]},
        {"name": "init", "ports": [{"containerPort": 99, "hostPort": 99}]},
    ]
    pod = _pod(containers=[{"name": "c", "ports": ports}], initContainers=initial)
    assert request_for(pod)["hostPorts"] == [
        {"port": 53, "protocol": "UDP", "hostIP": "10.0.0.1"},
        {"port": 80, "protocol": "TCP"},
    ]


def test_preemption_policy_is_carried_where_it_is_unusual() -> None:
    assert request_for(_pod(preemptionPolicy="Never"))["preemptionPolicy"] == "Never"
    usual = request_for(_pod(preemptionPolicy="PreemptLowerPriority"))
    assert "preemptionPolicy" not in usual


def test_what_only_ranks_nodes_or_needs_more_than_labels_is_named() -> None:
    soft = [{"weight": 1}]
    affinity = {
        "nodeAffinity": {_PREFERRED: soft},
        "podAffinity": {_PREFERRED: soft},
        "podAntiAffinity": {_PREFERRED: soft},
    }
    pod = _pod(affinity=affinity, resourceClaims=[{"name": "gpu"}])
    assert request_for(pod)["requirements"] == _ANY_MACHINE
    assert list(unsupported_fields(pod)) == [
        "nodeAffinity.preferred",
        "resourceClaims",
        "podAffinity.preferred",
        "podAntiAffinity.preferred",
    ]
    assert list(unsupported_fields(_pod())) == []
