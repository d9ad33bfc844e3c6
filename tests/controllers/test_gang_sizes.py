"""The size of a gang, from its owner."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.controllers.pod_controller.gangs import OwnerSpec, members_of


@pytest.mark.parametrize(
    ("spec", "members"),
    [
        ({"parallelism": 4, "completions": 4}, 4),
        ({"parallelism": 4, "completions": 3}, 3),
        ({"parallelism": 4}, 4),
        ({"parallelism": 0, "completions": 4}, 0),
        ({"replicas": 5, "pod_management_policy": "Parallel"}, 5),
        ({"replicas": 5, "pod_management_policy": "OrderedReady"}, 0),
        ({"replicas": 5}, 5),
        ({}, 0),
    ],
)
def test_only_pods_that_come_together_count(spec: dict[str, Any], members: int) -> None:
    assert members_of(OwnerSpec(**spec)) == members
