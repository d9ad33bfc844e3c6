"""The size of a gang, from its owner."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from bigfleet.controllers.pod_controller.gangs import GangSizes, OwnerSpec, members_of
from bigfleet.controllers.pod_controller.pods import Metadata
from bigfleet.kube.client import ApiError


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


async def test_a_size_that_was_denied_is_asked_for_again() -> None:
    """An API server that has just started knows no roles yet."""
    job = b'{"spec": {"parallelism": 4, "completions": 4}}'
    answers: list[ApiError | bytes] = [ApiError("GET", 403, "Forbidden", ""), job]

    class Api:
        async def get(self, _: str) -> bytes:
            answer = answers.pop(0)
            if isinstance(answer, ApiError):
                raise answer
            return answer

    owner = {"kind": "Job", "name": "j", "uid": "u", "controller": True}
    raw = {"name": "p", "namespace": "n", "uid": "p-1", "ownerReferences": [owner]}
    member = msgspec.convert(raw, Metadata)
    sizes = GangSizes(cast("Any", Api()))
    assert [await sizes.members(member) for _ in range(3)] == [0, 4, 4]
