"""What is wrong with an object before any API server has seen it. Pure.

The API server checks the rest: all objects of all scenarios are shown to a real one in a dry run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput
from loaddriver.profile.decoding import FieldError
from tests.scenarios import objects
from tests.scenarios.scenario_state import ScenarioState

# Marks of single autoscalers: with them a scenario would hold one of them only to what it says.
_NOT_PLAIN = ("bigfleet.lucy.sh", "karpenter.sh", "cluster-autoscaler.kubernetes.io")


def problems(body: Any, known: ScenarioState, at: str) -> Iterator[FieldError]:
    """The object's mistakes, each with its dotted place."""
    missing = list(_missing(body, at))
    yield from missing
    if missing:
        return
    yield from _marks(body, at)
    namespace = objects.namespace_of(body)
    if namespace and namespace not in known.namespaces:
        fix = "apply the Namespace before, or leave it out"
        yield FieldError(f"{at}.metadata.namespace", f"= {namespace!r}: there is none; {fix}")
    yield from _pods(body, at)
    for where, resource, amount in objects.quantities(body):
        try:
            resources.parse(resource, amount, round_up=True)
        except InvalidInput as error:
            yield FieldError(f"{at}.{where}.{resource}", f"= {amount!r} {error.hint}")


def _missing(body: Any, at: str) -> Iterator[FieldError]:
    for path in ("apiVersion", "kind", "metadata.name"):
        value: Any = body
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if not isinstance(value, str) or not value:
            yield FieldError(
                f"{at}.{path}", "is missing: an object has apiVersion, kind and a name"
            )


def _marks(value: Any, at: str) -> Iterator[FieldError]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _marks(key, f"{at}.{key}")
            yield from _marks(inner, f"{at}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _marks(inner, f"{at}[{number}]")
    elif isinstance(value, str) and any(mark in value for mark in _NOT_PLAIN):
        yield FieldError(at, f"= {value!r} belongs to one autoscaler; objects here are plain ones")


def _pods(body: Mapping[str, Any], at: str) -> Iterator[FieldError]:
    template = objects.template_of(body)
    if template is None:
        return
    if not ((template.get("spec") or {}).get("containers")):
        yield FieldError(f"{at}.spec", "has pods without containers; give them one")
    selector = ((body.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    labels = objects.pod_labels(body) or {}
    for key, value in selector.items():
        if labels.get(key) != value:
            where = f"{at}.spec.selector.matchLabels.{key}"
            yield FieldError(
                where, f"= {value!r}: its own pods do not have that label; add it there"
            )
    if not labels:
        yield FieldError(f"{at}.metadata.labels", "are missing: expectations name pods by labels")
