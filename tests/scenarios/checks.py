"""What makes a scenario useless or impossible, found before anything is started. Pure.

Above all: an expectation that holds whatever the autoscaler does is a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loaddriver.profile.decoding import FieldError
from loaddriver.profile.hints import did_you_mean
from tests.scenarios import expectation_checks, object_checks
from tests.scenarios.records import (
    Edit,
    Expect,
    OneNode,
    Resize,
    Scale,
    Scenario,
    SomePods,
    Step,
    Taint,
)
from tests.scenarios.scenario_state import ScenarioState


def problems_of(scenario: Scenario) -> Iterator[FieldError]:
    """Everything that is wrong with a scenario whose keys and types are right."""
    walk = _Walk()
    for number, step in enumerate(scenario.steps):
        yield from walk.step(step, f"steps[{number}]")
    if not scenario.steps or scenario.steps[-1].expect is None:
        yield FieldError(
            "steps", "do not end with an expectation: what the last one does is not seen"
        )


@dataclass
class _Walk:
    """Goes through the steps and knows what there is before each of them."""

    known: ScenarioState = field(default_factory=ScenarioState)

    def step(self, step: Step, at: str) -> Iterator[FieldError]:
        if len(step.verbs) != 1:
            given = ", ".join(step.verbs) or "none"
            yield FieldError(at, f"has {given}: a step has exactly one key; make it several steps")
            return
        (verb,) = step.verbs
        value = getattr(step, verb)
        at = f"{at}.{_camel(verb)}"
        if verb == "apply":
            yield from self._apply(value, at)
        elif isinstance(value, Expect):
            yield from expectation_checks.problems(value, self.known, at)
            for name in value.rolled_out:
                yield from self._object(name, f"{at}.rolledOut")
            self.known.after(value)
        else:
            yield from self._act(value, at)

    def _apply(self, bodies: tuple[dict[str, Any], ...], at: str) -> Iterator[FieldError]:
        if not bodies:
            yield FieldError(at, "applies nothing; leave the step out")
        for number, body in enumerate(bodies):
            wrong = list(object_checks.problems(body, self.known, f"{at}[{number}]"))
            yield from wrong
            if not wrong:
                self.known.add(body)

    def _act(self, value: Any, at: str) -> Iterator[FieldError]:
        if isinstance(value, OneNode):
            yield from self._node(value, at)
        elif isinstance(value, Taint):
            yield from self._node(value.node, f"{at}.node")
        elif isinstance(value, tuple):
            for name in value:
                yield from self._object(name, at)
        elif isinstance(value, str):
            yield from self._object(value, at)
            self.known.revised.add(value)
        elif isinstance(value, SomePods | Resize):
            yield from self.known.unmatched(value.pods, f"{at}.pods")
        elif isinstance(value, Scale | Edit):
            yield from self._object(value.object, f"{at}.object")
            self.known.change(value)

    def _object(self, name: str, at: str) -> Iterator[FieldError]:
        if name not in self.known.objects:
            yield FieldError(at, f"= {name!r}: no step before has applied it{self._near(name)}")

    def _near(self, name: str) -> str:
        return did_you_mean(name, list(self.known.objects))

    def _node(self, node: OneNode, at: str) -> Iterator[FieldError]:
        by_pods = [selector for selector in (node.running, node.fewest) if selector]
        if len(by_pods) > 1:
            yield FieldError(at, "has running and fewest: one Node is meant, so give one of them")
        for selector in by_pods:
            yield from self.known.unmatched(selector, at)
            if not self.known.has_run:
                yield FieldError(
                    at, "is a Node with pods, and no step before has waited until any run"
                )
        if node.named and by_pods and node.named in self.known.nodes:
            yield FieldError(at, f"gives the name {node.named} again; choose another one")
        if not by_pods and (node.named or "") not in self.known.nodes:
            yield FieldError(
                at, f"{node.named}: no step has named a Node so; say which by `running`"
            )
        if node.named:
            self.known.nodes.add(node.named)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
