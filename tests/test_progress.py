"""The time left that a long run of the tests prints."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.progress import Estimate
from tests.support.side_by_side import group_of


def test_nothing_is_left_once_every_test_has_ended() -> None:
    done = Estimate({"a": 2, "b": 1}, {"a": 60.0, "b": 30.0}, 2, Counter(a=2, b=1))
    assert done.share_done() == 1
    assert done.seconds_left(elapsed=45.0) == 0


def test_the_rest_is_expected_to_take_longer_if_what_is_done_did() -> None:
    """90 s were expected, of which a third took twice as long: the other 60 s take up to 120 s, and
    the more is done the nearer to twice as long the rest is.
    """
    early = Estimate({"a": 2, "b": 1}, {"a": 60.0, "b": 30.0}, 1, Counter(b=1))
    assert early.share_done() == pytest.approx(1 / 3)
    assert 60 < early.seconds_left(elapsed=60.0) < 120
    late = Estimate({"a": 2, "b": 1}, {"a": 60.0, "b": 30.0}, 1, Counter(a=1, b=1))
    assert early.seconds_left(elapsed=60.0) / 60 < late.seconds_left(elapsed=120.0) / 30 < 2


def test_a_file_is_not_divided_between_workers() -> None:
    """However many workers there are, the longest one is waited for."""
    many = Estimate({"a": 10, "b": 1}, {"a": 100.0, "b": 25.0}, 4, Counter(b=1))
    assert many.seconds_left(elapsed=6.25) == pytest.approx(100)


def test_before_the_first_test_has_ended_what_is_expected_is_left() -> None:
    assert Estimate({"a": 1}, {"a": 30.0}, 1).seconds_left(elapsed=5.0) == pytest.approx(30)


def test_a_federations_control_planes_are_started_by_one_worker() -> None:
    """Its files are one group; any other file is a group by itself."""
    files = (Path(__file__).parent / "fedhpa").glob("test_*.py")
    federated = [f.name for f in files if "federated: Fleet" in f.read_text()]
    assert federated
    assert {group_of(name) for name in federated} == {"federation"}
    assert group_of("tests/controllers/test_rollups_on_cluster.py") != "federation"
