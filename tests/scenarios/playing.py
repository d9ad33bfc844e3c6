"""Plays one scenario in a cluster that an autoscaler serves: steps, waiting, judging."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from tests.scenarios import judging
from tests.scenarios.history import History
from tests.scenarios.judging import Facts, Message
from tests.scenarios.kubectl import Kubectl, StepError
from tests.scenarios.records import Expect, Scenario
from tests.scenarios.systems.system import System
from tests.scenarios.timing import POLL_INTERVAL_SECONDS


async def play(scenario: Scenario, system: System, kubectl: Kubectl) -> list[str]:
    """Every step in turn, up to the first that goes wrong; what does not hold then, if anything."""
    seen = kubectl.history
    for number, step in enumerate(scenario.steps):
        if step.expect is None:
            seen.stepped_at = seen.now()
            try:
                await kubectl.do(step)
            except StepError as error:
                return [f"step {number} could not be done: {error}"]
            continue
        seen.note("expecting")
        if wrong := await _expect(_judged(step.expect, system), system, kubectl):
            return [f"step {number}: {text}" for text in wrong]
        seen.counted = len(seen.present())
    return []


def _judged(expect: Expect, system: System) -> Expect:
    """As much of it as the system is held to."""
    nothing = Expect()
    dropped = {name for name in expect.__struct_fields__ if name not in system.judged}
    return msgspec.structs.replace(expect, **{name: getattr(nothing, name) for name in dropped})


async def _expect(expect: Expect, system: System, kubectl: Kubectl) -> Sequence[str]:
    seen = kubectl.history
    if wrong := await _come(expect, system, kubectl):
        return wrong
    if wrong := list(judging.final_problems(expect, seen)):
        return wrong
    if expect.quiet is None:
        return ()
    seen.note(f"all hold; no change is allowed for {expect.quiet:g} s")
    latest = seen.now() + (expect.settle or 0.0)
    while True:
        if wrong := await _stay_quiet(expect.quiet, latest, seen):
            return wrong
        facts = await _facts(expect, system, kubectl)
        unmet = [each.text for each in judging.eventual_problems(expect, seen, facts)]
        if not unmet or seen.now() > latest:
            return [*unmet, *judging.final_problems(expect, seen)]
        seen.note(f"not yet: {unmet[0]}")  # quiet, but with what still has to go


async def _stay_quiet(seconds: float, latest: float, seen: History) -> Sequence[str]:
    began = seen.now()
    while seen.now() - began < seconds:
        if wrong := list(judging.disturbances(seen, began)):
            if seen.now() > latest:
                return wrong
            seen.note(f"not yet: {wrong[0]}")
            began = seen.now()
        await asyncio.sleep(POLL_INTERVAL_SECONDS)
    return ()


async def _come(expect: Expect, system: System, kubectl: Kubectl) -> Sequence[str]:
    """What has not come to hold in time. All must hold in the same moment."""
    seen = kubectl.history
    began = seen.now()
    while True:
        facts = await _facts(expect, system, kubectl)
        unmet = list(judging.eventual_problems(expect, seen, facts))
        waited = seen.now() - began
        if not unmet:
            return ()
        if any(waited >= each.within for each in unmet):
            return [f"after {waited:.0f} s {each.text}" for each in unmet]
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def _facts(expect: Expect, system: System, kubectl: Kubectl) -> Facts:
    workloads = {name: await kubectl.get(name) for name in expect.rolled_out}
    messages = await _messages(expect, system, kubectl.history)
    return Facts(messages, system.message_patterns, workloads)


async def _messages(
    expect: Expect, system: System, seen: History
) -> Mapping[str, Sequence[Message]]:
    pods = [pod for reports in expect.reports for pod in seen.live(reports.pods)]
    if not pods:
        return {}
    conditions = await system.conditions(pods)
    return {
        pod.uid: [
            *(
                Message("event", str(event.get("reason")), str(event.get("message")))
                for event in seen.events_about(pod.uid)
            ),
            *conditions.get(pod.uid, ()),
        ]
        for pod in pods
    }
