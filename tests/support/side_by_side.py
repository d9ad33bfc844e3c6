"""Which tests run one after the other in one worker, and what is begun first."""

from __future__ import annotations

from collections import defaultdict

import pytest
from xdist.scheduler import LoadGroupScheduling

from tests.support.durations import expected_seconds, file_of, known_seconds


class ByFile(LoadGroupScheduling):  # type: ignore[misc]  # it has no types
    """A worker takes one group of tests after the other; those without a group go by file.

    They are begun in the order in which they were collected.
    """

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return file_of(nodeid) if group == nodeid else group


def longest_first(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort tests by the seconds of their group, so that no worker is left with a long one at the
    end. A group's tests keep their order.
    """
    files = {file_of(item.nodeid): _group(item) for item in items}
    seconds: defaultdict[str, float] = defaultdict(float)
    for name, each in expected_seconds(known_seconds(config), files).items():
        seconds[files[name]] += each
    items.sort(key=lambda item: (-seconds[_group(item)], _group(item)))


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark else file_of(item.nodeid)
