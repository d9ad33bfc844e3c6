"""An archetype from the pod template of a workload that somebody has.

The template is translated into an archetype's keys, so that plan, sizing and preflight know what
its pods need. What no archetype can express is refused with its place: a pod without it would be
placed differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bigfleet.model import resources
from loaddriver.errors import ProfileError

Template = Mapping[str, Any]

_ZONE, _HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
# Of `bigfleet.model.resources`: KiB in a MiB, thousandths in one.
_KIBIBYTES, _THOUSANDTHS = 1024, 1000
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_REFUSED = {
    "nodeName": "a pod with it is not scheduled",
    "schedulerName": "another scheduler would have to run",
    "schedulingGates": "nobody would open them",
    "resourceClaims": "no driver would serve them",
    "runtimeClassName": "its overhead is unknown here",
    "overhead": "add it to the containers' requests",
    "priorityClassName": "the class is unknown here; give the archetype a priority",
    "hostNetwork": "host ports are not played",
}
_WORKLOADS = ("Deployment", "StatefulSet", "Job", "ReplicaSet", "PodTemplate")


def archetype_keys(manifest: Any, where: str) -> dict[str, Any]:
    """The keys of an archetype, without its name, kind and weights.

    `manifest` is a Pod, a workload with a pod template, or a bare `{metadata, spec}`. Raises
    ProfileError with every part that cannot be played.
    """
    spec = _pod_spec(manifest, where)
    translation = _Translation(spec)
    keys = translation.keys()
    if translation.problems:
        raise ProfileError([f"{where}: {problem}" for problem in translation.problems])
    return keys


def _pod_spec(manifest: Any, where: str) -> Template:
    found = manifest if isinstance(manifest, Mapping) else {}
    if found.get("kind") in _WORKLOADS:
        inner = found if found["kind"] == "PodTemplate" else found.get("spec") or {}
        found = inner.get("template") or {}
    spec = found.get("spec")
    if not isinstance(spec, Mapping) or not spec.get("containers"):
        raise ProfileError([f"{where}: expected a pod template: no spec.containers"])
    return spec


class _Translation:
    """Collects `problems` while it translates a pod's spec."""

    def __init__(self, spec: Template) -> None:
        self._spec = spec
        self.problems = [f"{key}: {why}" for key, why in _REFUSED.items() if spec.get(key)]
        self.problems += _volume_problems(spec)

    def keys(self) -> dict[str, Any]:
        spec = self._spec
        affinity = spec.get("affinity") or {}
        node_labels, zones = self._node_affinity(affinity.get("nodeAffinity") or {})
        found: dict[str, Any] = {
            "sizes": [self._size()],
            "nodeSelector": {**(spec.get("nodeSelector") or {}), **node_labels},
            "tolerations": self._tolerations(spec.get("tolerations") or ()),
            "zones": zones,
            **self._anti_affinity(affinity.get("podAntiAffinity") or {}),
            **self._spread(spec.get("topologySpreadConstraints") or ()),
        }
        if affinity.get("podAffinity"):
            self.problems.append("affinity.podAffinity: not played; give the archetype a gang")
        if spec.get("preemptionPolicy") == "Never":
            found["preempts"] = False
        if spec.get("priority"):
            found["priority"] = spec["priority"]
        return {key: value for key, value in found.items() if value not in ({}, [], None)}

    def _size(self) -> dict[str, Any]:
        """What the scheduler counts: the sum of the containers, or the largest init container."""
        together: dict[str, int] = {}
        for container in self._spec["containers"]:
            for name, amount in self._requests(container).items():
                together[name] = together.get(name, 0) + amount
        for container in self._spec.get("initContainers") or ():
            if container.get("restartPolicy") == "Always":
                self.problems.append("initContainers: sidecars are not played; make it a container")
            for name, amount in self._requests(container).items():
                together[name] = max(together.get(name, 0), amount)
        cpu, memory = together.pop("cpu", 0), together.pop("memory", 0)
        if not cpu or not memory:
            self.problems.append("containers: cpu and memory must be requested")
        size = {"cpuMillicores": cpu, "memoryMebibytes": -(-memory // _KIBIBYTES)}
        extended = {name: -(-amount // _THOUSANDTHS) for name, amount in together.items()}
        return {**size, "extendedResources": extended} if extended else size

    def _requests(self, container: Template) -> dict[str, int]:
        given = container.get("resources") or {}
        quantities = {**(given.get("limits") or {}), **(given.get("requests") or {})}
        if any(port.get("hostPort") for port in container.get("ports") or ()):
            self.problems.append("containers: hostPort is not played")
        return {
            name: resources.parse(name, str(text), round_up=True)
            for name, text in quantities.items()
        }

    def _node_affinity(self, given: Template) -> tuple[dict[str, str], list[str]]:
        labels: dict[str, str] = {}
        zones: list[str] = []
        place = "affinity.nodeAffinity"
        if given.get("preferredDuringSchedulingIgnoredDuringExecution"):
            self.problems.append(f"{place}: preferences are not played")
        terms = (given.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
        if len(terms) > 1:
            self.problems.append(f"{place}: only one nodeSelectorTerm is played")
        for each in [e for term in terms for e in term.get("matchExpressions") or ()]:
            values = each.get("values") or []
            if each["key"] == _ZONE and each["operator"] == "In":
                zones = values
            elif each["operator"] == "In" and len(values) == 1:
                labels[each["key"]] = values[0]
            else:
                self.problems.append(
                    f"{place}: {each['key']} {each['operator']}: only In is played, with zones or "
                    "with one value"
                )
        return labels, zones

    def _anti_affinity(self, given: Template) -> dict[str, str]:
        terms = given.get(_REQUIRED) or ()
        others = [term for term in terms if term.get("topologyKey") != _HOSTNAME]
        if others or given.get("preferredDuringSchedulingIgnoredDuringExecution"):
            self.problems.append(
                f"affinity.podAntiAffinity: only required terms with {_HOSTNAME} are played"
            )
        return {"antiAffinity": "hostname"} if terms and not others else {}

    def _tolerations(self, given: Sequence[Template]) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for each in given:
            if not each.get("key"):
                self.problems.append("tolerations: one without key tolerates everything")
                continue
            value = {} if each.get("operator") == "Exists" else {"value": each.get("value", "")}
            effect = {"effect": each["effect"]} if each.get("effect") else {}
            found.append({"key": each["key"], **value, **effect})
        return found

    def _spread(self, given: Sequence[Template]) -> dict[str, Any]:
        by_key = {each["topologyKey"]: each for each in given}
        zones, hosts = by_key.pop(_ZONE, None), by_key.pop(_HOSTNAME, None)
        if by_key or len(given) > 2:
            self.problems.append(f"topologySpreadConstraints: {', '.join(by_key)} is not played")
        if hosts and (zones is None or hosts["whenUnsatisfiable"] != "ScheduleAnyway"):
            self.problems.append(
                f"topologySpreadConstraints: {_HOSTNAME} is played beside zones, with "
                "ScheduleAnyway"
            )
        if zones is None:
            return {}
        skew = {"maxSkew": zones["maxSkew"], "whenUnsatisfiable": zones["whenUnsatisfiable"]}
        more = {"hostnameMaxSkew": hosts["maxSkew"]} if hosts else {}
        return {"spread": {"share": 1, **skew, **more}}


def _volume_problems(spec: Template) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        for kind in ("persistentVolumeClaim", "ephemeral", "csi"):
            if kind in volume:
                yield f"volumes.{volume.get('name')}: {kind}: no driver would serve it"
