"""Which tests run one after the other in one worker, and what is begun first."""

from __future__ import annotations

import zlib
from collections import defaultdict

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support.durations import expected_seconds, file_of, known_seconds

# They share a federation of three control planes, which not every worker should start.
_ON_CLUSTERS, _FEDERATION = "_on_clusters.py", "federation"
# They share a control plane, which not every worker should start and keep. One worker alone would
# be busy with them longer than the others with the rest.
_ON_CLUSTER = (
    "_on_cluster.py",
    "_on_api_server.py",
    "/test_admitted_is_accepted.py",
    "/test_cluster_state.py",
    "/test_host_bootstrap.py",
    "/test_kube_rights.py",
    "/test_kubeconfigs.py",
    "/test_leader_election.py",
    "/test_scenario_objects.py",
    "/test_why.py",
)
_CONTROL_PLANES = 2


def group_of(file: str) -> str:
    """The tests that one worker runs one after the other: those of a file, or of several."""
    if file.endswith(_ON_CLUSTERS):
        return _FEDERATION
    if file.endswith(_ON_CLUSTER):
        return f"control plane {zlib.crc32(file.encode()) % _CONTROL_PLANES}"
    return file


def ends_group(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Whether a worker's next test, if any, is of another group."""
    if following is None:
        return True
    return group_of(file_of(item.nodeid)) != group_of(file_of(following.nodeid))


class ByGroup(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """A worker takes one group of tests after the other, in the order of their collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(file_of(nodeid))


def longest_first(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort tests by the seconds of their group, so that no worker is left with a long one at the
    end. A group's tests keep their order.
    """
    files = {file_of(item.nodeid) for item in items}
    seconds: defaultdict[str, float] = defaultdict(float)
    for file, each in expected_seconds(known_seconds(config), files).items():
        seconds[group_of(file)] += each

    def place(item: pytest.Item) -> tuple[float, str]:
        group = group_of(file_of(item.nodeid))
        return -seconds[group], group

    items.sort(key=place)
