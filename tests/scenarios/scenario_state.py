"""What a scenario has said up to one of its steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loaddriver.profile.decoding import FieldError
from tests.scenarios import objects
from tests.scenarios.records import Edit, Expect, Scale


@dataclass
class _Pods:
    """The pods of one object: the labels that they may have, and the most there were at a time."""

    kind: str
    labels: list[dict[str, str]]
    most: int | None


@dataclass
class ScenarioState:
    """Objects by reference, their pods, Nodes that have names, whether anything has run yet, and
    workloads of which a new revision has been begun since the last expectation.
    """

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=lambda: {objects.NAMESPACE})
    nodes: set[str] = field(default_factory=set)
    has_run: bool = False
    revised: set[str] = field(default_factory=set)
    _pods: dict[str, _Pods] = field(default_factory=dict)

    def add(self, body: dict[str, Any]) -> None:
        """`body` has been applied."""
        name = objects.reference_of(body)
        self.objects[name] = body
        if body["kind"] == "Namespace":
            self.namespaces.add(body["metadata"]["name"])
        labels = objects.pod_labels(body)
        if labels is None:
            return
        pods = self._pods.setdefault(name, _Pods(body["kind"], [], 0))
        pods.labels.append(labels)
        self._grown(name, objects.pods_of(body))

    def change(self, step: Scale | Edit) -> None:
        """An object has been scaled or edited."""
        if step.object not in self._pods:
            return
        if isinstance(step, Scale):
            self._grown(step.object, step.replicas)
            return
        spec = step.patch.get("spec") or {}
        if "template" in spec:
            self.revised.add(step.object)
        template = spec.get("template") or {}
        if labels := (template.get("metadata") or {}).get("labels"):
            pods = self._pods[step.object]
            pods.labels.append({**pods.labels[-1], **labels})
        self._grown(step.object, spec.get("replicas", spec.get("parallelism", 0)))

    def after(self, expect: Expect) -> None:
        """The expectation has held."""
        self.has_run = self.has_run or bool(expect.bound)
        self.revised.clear()

    def most_pods(self, selector: str | None = None) -> int | None:
        """The most pods at a time that the selector can have meant; None where Nodes decide."""
        found = [p for p in self._pods.values() if selector is None or _means(selector, p)]
        counts = [pods.most for pods in found]
        return None if None in counts else sum(count or 0 for count in counts)

    def kinds(self, selector: str) -> set[str]:
        """What kinds of objects the pods belong to."""
        return {pods.kind for pods in self._pods.values() if _means(selector, pods)}

    def unmatched(self, selector: str, at: str) -> Iterator[FieldError]:
        """The problem that no object so far has pods with these labels."""
        if not self.kinds(selector):
            known = sorted({_text(each) for p in self._pods.values() for each in p.labels})
            has = "; ".join(known) or "no pods at all"
            yield FieldError(at, f"= {selector!r}: no object applied so far has such pods ({has})")

    def _grown(self, name: str, count: int | None) -> None:
        pods = self._pods[name]
        pods.most = None if count is None or pods.most is None else max(pods.most, count)


def _means(selector: str, pods: _Pods) -> bool:
    return any(objects.matches(selector, labels) for labels in pods.labels)


def _text(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
