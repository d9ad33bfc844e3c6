"""Pods that their gang holds to a domain that others have filled."""

from __future__ import annotations

from bigfleet.controllers.pod_controller.stranded import (
    MOST_TIMES,
    PATIENCE_SECONDS,
    Gangs,
    Stranded,
)


def _torn(now: float = 0.0) -> Gangs[str]:
    """Two of a gang of three run on node n1."""
    gangs = Gangs[str]()
    for pod, node in (("a", "n1"), ("b", "n1"), ("c", "")):
        gangs.see(pod, "gang", node, now)
    return gangs


def _after(gangs: Gangs[str], seconds: float) -> list[Stranded[str]]:
    return list(gangs.stranded(seconds))


def test_who_waits_beside_a_companion_is_stranded_after_a_minute() -> None:
    gangs = _torn()
    assert _after(gangs, PATIENCE_SECONDS - 1) == []
    assert _after(gangs, PATIENCE_SECONDS) == [Stranded("c", "n1", 1)]


def test_a_gang_that_still_moves_has_nobody_stranded() -> None:
    """A pod that comes, or is bound, begins the minute anew; one that is seen again does not."""
    gangs = _torn()
    gangs.see("d", "gang", "", 50.0)
    assert _after(gangs, 100.0) == []
    gangs.see("d", "gang", "n2", 100.0)
    gangs.see("d", "gang", "n2", 150.0)
    assert _after(gangs, 159.0) == []
    assert _after(gangs, 160.0) == [Stranded("c", "n1", 1)]


def test_a_gang_without_any_bound_pod_may_still_go_anywhere() -> None:
    gangs = Gangs[str]()
    gangs.see("a", "gang", "", 0.0)
    gangs.see("b", "gang", "", 0.0)
    assert _after(gangs, 1_000.0) == []


def test_a_whole_gang_and_one_whose_bound_pods_are_gone_have_nobody_stranded() -> None:
    whole, begun = _torn(), _torn()
    whole.see("c", "gang", "n1", 10.0)
    for pod in ("a", "b"):
        begun.forget(pod)
    assert _after(whole, 1_000.0) == []
    assert _after(begun, 1_000.0) == []


def test_other_gangs_do_not_matter() -> None:
    gangs = _torn()
    gangs.see("x", "other", "", 59.0)
    gangs.see("y", "other", "n9", 59.0)
    assert _after(gangs, 60.0) == [Stranded("c", "n1", 1)]


def test_what_others_fill_again_is_asked_for_again_but_not_for_ever() -> None:
    gangs = _torn()
    times = [_after(gangs, seconds)[0].times for seconds in (60, 179, 180, 300, 10_000)]
    assert times == [1, 1, 2, 3, MOST_TIMES]


def test_a_gang_that_is_gone_is_forgotten() -> None:
    gangs = _torn()
    for pod in ("a", "b", "c", "never seen"):
        gangs.forget(pod)
    gangs.see("a", "gang", "n1", 500.0)
    gangs.see("c", "gang", "", 500.0)
    assert _after(gangs, 559.0) == []
