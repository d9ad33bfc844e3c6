"""Which clusters an object may use, in which order, within which bounds."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bigfleet.fedhpa.objects import PREFERENCES, Autoscaler, ClusterSelection
from bigfleet.fedhpa.selection import bounds, preferences_of, selected
from bigfleet.fedhpa.shares import UNBOUNDED, ClusterBounds
from bigfleet.model.errors import InvalidInput

REGISTERED = {"z": {"env": "prod"}, "a": {"env": "prod", "gpu": "yes"}, "m": {"env": "test"}}


def _selection(**fields: Any) -> ClusterSelection:
    return msgspec.convert(fields, ClusterSelection)


def _autoscaler(annotation: Any, *preferences: dict[str, Any]) -> Autoscaler:
    text = annotation if isinstance(annotation, str) else json.dumps(annotation)
    body = {
        "metadata": {"name": "web", "annotations": {PREFERENCES: text}},
        "spec": {
            "scaleTargetRef": {"kind": "FederatedDeployment", "name": "web"},
            "maxReplicas": 9,
            "preferences": preferences,
        },
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=Autoscaler)


def test_without_a_selection_all_are_chosen_in_alphabetical_order() -> None:
    assert selected(_selection(), REGISTERED) == ["a", "m", "z"]


def test_names_are_used_in_the_users_order_and_unknown_ones_ignored() -> None:
    assert selected(_selection(names=["z", "nowhere", "a"]), REGISTERED) == ["z", "a"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ({"matchLabels": {"env": "prod"}}, ["a", "z"]),
        ({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, ["a"]),
        ({"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}, ["m", "z"]),
        ({"matchExpressions": [{"key": "env", "operator": "In", "values": ["test"]}]}, ["m"]),
        (
            {"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["yes"]}]},
            ["m", "z"],
        ),
        ({"matchExpressions": [{"key": "gpu", "operator": "Near"}]}, []),
    ],
)
def test_labels_select_as_everywhere_in_kubernetes(
    selector: dict[str, Any], found: list[str]
) -> None:
    assert selected(_selection(selector=selector), REGISTERED) == found


def test_the_annotation_gives_bounds_and_the_star_is_for_all_others() -> None:
    autoscaler = _autoscaler(
        {"clusters": {"a": {"minReplicas": 2, "maxReplicas": 4}, "*": {"maxReplicas": 3}}}
    )
    preferences = preferences_of(autoscaler)
    assert bounds(preferences, "a") == ClusterBounds(2, 4)
    assert bounds(preferences, "z") == ClusterBounds(0, 3)


def test_a_field_wins_over_the_annotation_for_the_same_cluster() -> None:
    autoscaler = _autoscaler({"clusters": {"a": {"minReplicas": 2}}}, {"cluster": "a"})
    assert bounds(preferences_of(autoscaler), "a") == ClusterBounds(0, UNBOUNDED)


def test_weights_in_the_annotation_do_not_count() -> None:
    autoscaler = _autoscaler({"rebalance": True, "clusters": {"a": {"weight": 7}}})
    assert bounds(preferences_of(autoscaler), "a") == ClusterBounds()


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ("{", "must be JSON"),
        ({"a": {"minReplicas": 2}}, "unknown field `a`|missing required field `clusters`"),
        ({"clusters": {"a": {"minreplicas": 2}}}, "unknown field `minreplicas`"),
        ({"clusters": {"a": {"minReplicas": "two"}}}, "must be JSON"),
        ({"clusters": {"a": {"minReplicas": -2}}}, "is negative"),
        ({"clusters": {"a": {"minReplicas": 5, "maxReplicas": 4}}}, "cluster a"),
    ],
)
def test_a_bad_annotation_is_named(annotation: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        preferences_of(_autoscaler(annotation))
