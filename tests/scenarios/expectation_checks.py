"""Expectations that hold, or fail, whatever the autoscaler does. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loaddriver.profile.decoding import FieldError
from tests.scenarios.records import Evicted, Expect, Machines, Spread
from tests.scenarios.scenario_state import ScenarioState
from tests.scenarios.timing import REACTION_SECONDS

_BY_PODS = (
    "bound",
    "finished",
    "pending",
    "no_pods",
    "reports",
    "apart",
    "together",
    "spread",
    "where",
)
_LIMITS = ("exactly", "at_most", "at_least", "more", "peak", "peak_more")


def problems(expect: Expect, known: ScenarioState, at: str) -> Iterator[FieldError]:
    """The mistakes in one expectation, after all the steps that `known` has seen."""
    if not any(getattr(expect, name) for name in expect.__struct_fields__):
        yield FieldError(at, "expects nothing, so it can never fail; say what must come to hold")
    yield from _quiet(expect, at)
    yield from _pods(expect, known, at)
    for position, machines in enumerate(expect.machines):
        yield from _machines(machines, known, f"{at}.machines[{position}]")
    for position, spread in enumerate(expect.spread):
        yield from _spread(spread, known, f"{at}.spread[{position}]")
    for position, evicted in enumerate(expect.evicted):
        yield from _evicted(evicted, expect, known, f"{at}.evicted[{position}]")
    if expect.nodes is not None:
        yield from _nodes(expect, known, f"{at}.nodes")


def _pods(expect: Expect, known: ScenarioState, at: str) -> Iterator[FieldError]:
    for name, position, each in _each(expect, _BY_PODS):
        yield from known.unmatched(each.pods, f"{at}.{name}[{position}].pods")
    for name, position, each in _each(expect, ("bound", "finished", "pending")):
        most = known.most_pods(each.pods)
        if most is not None and 0 < most < each.count:
            fix = f"the objects make at most {most} of them"
            yield FieldError(
                f"{at}.{name}[{position}].count", f"= {each.count} can never hold: {fix}"
            )
    for position, selector in enumerate(expect.one_per_node):
        if known.kinds(selector) != {"DaemonSet"}:
            yield FieldError(
                f"{at}.onePerNode[{position}]", f"= {selector!r}: no pods of a DaemonSet"
            )
    for name in sorted(known.revised - set(expect.rolled_out)):
        if not expect.pending:
            why = f"{name} has a new revision, and until its roll-out begins all holds as before"
            yield FieldError(f"{at}.rolledOut", f"is missing: {why}; wait for it here")


def _each(expect: Expect, names: tuple[str, ...]) -> Iterator[tuple[str, int, Any]]:
    for name in names:
        for position, each in enumerate(getattr(expect, name)):
            yield name.replace("no_pods", "noPods"), position, each


def _quiet(expect: Expect, at: str) -> Iterator[FieldError]:
    if expect.quiet is not None and expect.quiet < REACTION_SECONDS:
        why = f"an autoscaler may take {REACTION_SECONDS:g} s to act, so it can never fail"
        yield FieldError(f"{at}.quiet", f"= {expect.quiet:g}: {why}; wait at least so long")
    if expect.settle is not None and expect.quiet is None:
        yield FieldError(f"{at}.settle", "is when a quiet begins at the latest; give that, too")
    if expect.pending and expect.quiet is None:
        why = "every pod is pending at first, so this can never fail"
        yield FieldError(f"{at}.pending", f"has no quiet beside it: {why}; say for how long")


def _machines(machines: Machines, known: ScenarioState, at: str) -> Iterator[FieldError]:
    given = [name for name in _LIMITS if getattr(machines, name) is not None]
    if not given:
        yield FieldError(
            at, "has no number, so it can never fail; give exactly, atMost, more or peak"
        )
    most = known.most_pods()
    for name in ("at_most", "peak"):
        limit = getattr(machines, name)
        if limit is not None and most is not None and most > 0 and limit >= 2 * most:
            fix = f"all objects together make {most} pods; give a lower one"
            key = "atMost" if name == "at_most" else name
            yield FieldError(f"{at}.{key}", f"= {limit} can hardly fail: {fix}")
    exactly, peak = machines.exactly, machines.peak
    if exactly is not None and peak is not None and peak < exactly:
        yield FieldError(f"{at}.peak", f"= {peak} is below exactly = {exactly}")


def _spread(spread: Spread, known: ScenarioState, at: str) -> Iterator[FieldError]:
    most = known.most_pods(spread.pods)
    if most is not None and 0 < most <= spread.max_skew:
        fix = f"only {most} pods are meant; give a lower one"
        yield FieldError(f"{at}.maxSkew", f"= {spread.max_skew} can never fail: {fix}")


def _evicted(
    evicted: Evicted, expect: Expect, known: ScenarioState, at: str
) -> Iterator[FieldError]:
    if not (known.has_run or expect.bound or expect.machines):
        yield FieldError(at, "can never fail: no pod has run yet; wait with `bound` before")
    if evicted.pods is not None:
        yield from known.unmatched(evicted.pods, f"{at}.pods")
    most = known.most_pods(evicted.pods)
    if most is not None and 0 < most <= evicted.at_most:
        fix = f"only {most} pods are meant; give a lower one"
        yield FieldError(f"{at}.atMost", f"= {evicted.at_most} can hardly fail: {fix}")


def _nodes(expect: Expect, known: ScenarioState, at: str) -> Iterator[FieldError]:
    assert expect.nodes is not None
    for name in (*expect.nodes.gone, *expect.nodes.there):
        if name not in known.nodes:
            named = ", ".join(sorted(known.nodes)) or "none"
            yield FieldError(at, f"{name}: no step has given a Node this name (known: {named})")
    if expect.nodes.there and expect.quiet is None:
        fix = "say by `quiet` for how long it must stay"
        yield FieldError(f"{at}.there", f"can never fail right after the step that named it; {fix}")
