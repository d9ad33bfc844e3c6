"""Runs helm, and reads what it renders."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FLEET, CLUSTER = ROOT / "charts" / "bigfleet", ROOT / "charts" / "bigfleet-cluster"
CHARTS = (FLEET, CLUSTER)
# A run of the harness, with a fleet of its own.
SCALETEST = ROOT / "charts" / "scaletest"
RELEASE = "bigfleet"
NAMESPACES: Mapping[Path, str] = {FLEET: "fleet", CLUSTER: "bigfleet-system"}
VALUES = Path(__file__).with_name("values")
# The values files of each chart.
CASES = tuple(
    (chart, VALUES / f"{name}.yaml")
    for chart, names in (
        (FLEET, ("fleet", "fleet-everything", "fleet-simulated")),
        (CLUSTER, ("cluster", "cluster-everything", "cluster-operator-only")),
    )
    for name in names
)
_SECONDS = 240.0  # deleting a namespace takes long on a busy machine

Object = dict[str, Any]


class HelmFailed(Exception):
    """helm ended with an error; its text is what helm printed."""


@dataclass(frozen=True)
class Helm:
    """The helm at `path`, which finds no settings of this machine's user. `access` are flags."""

    path: Path
    home: Path
    access: tuple[str, ...] = ()

    def run(self, *arguments: str | Path) -> str:
        """Its output. HelmFailed with its error text if it fails."""
        command = [str(self.path), *map(str, arguments), *self.access]
        ended = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env={"HOME": str(self.home), "PATH": ""},
        )
        if ended.returncode != 0:
            raise HelmFailed(ended.stdout + ended.stderr)
        return ended.stdout

    def template(self, chart: Path, values: Path, *flags: str) -> list[Object]:
        """The objects that a release with these values consists of."""
        text = self.run("template", RELEASE, chart, "-n", NAMESPACES[chart], "-f", values, *flags)
        return [each for each in yaml.safe_load_all(text) if each]

    def template_of_release(self, namespace: str) -> list[Object]:
        """The objects of the release that is installed there."""
        text = self.run("get", "manifest", RELEASE, "-n", namespace)
        return [each for each in yaml.safe_load_all(text) if each]


def of_kind(objects: Iterable[Object], *kinds: str) -> list[Object]:
    """Those of the given kinds, in their order."""
    return [each for each in objects if each["kind"] in kinds]


@dataclass(frozen=True)
class Replica:
    """One pod of a workload, as its controller would make it."""

    workload: Object
    name: str

    @property
    def spec(self) -> Object:
        spec: Object = self.workload["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Object:
        [container] = self.spec["containers"]
        found: Object = container
        return found

    @property
    def arguments(self) -> list[str]:
        """As the kubelet would expand them."""
        return [each.replace("$(POD_NAME)", self.name) for each in self.container["args"]]

    def flag(self, name: str) -> str:
        """The value of a flag."""
        [value] = [each.partition("=")[2] for each in self.arguments if each.startswith(f"{name}=")]
        return value


def replicas(objects: Iterable[Object]) -> Iterator[Replica]:
    """The pods of all workloads; those of a Deployment bear its name."""
    for workload in of_kind(objects, "StatefulSet", "Deployment"):
        name = workload["metadata"]["name"]
        stateful = workload["kind"] == "StatefulSet"
        for number in range(workload["spec"]["replicas"]):
            yield Replica(workload, f"{name}-{number}" if stateful else name)


def mounted_files(replica: Replica, objects: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """The path and the text of each file that comes from a ConfigMap of the chart."""
    texts = {each["metadata"]["name"]: each["data"] for each in of_kind(objects, "ConfigMap")}
    paths = {each["name"]: each["mountPath"] for each in replica.container["volumeMounts"]}
    for volume in replica.spec["volumes"]:
        if "configMap" in volume:
            for name, text in texts[volume["configMap"]["name"]].items():
                yield f"{paths[volume['name']]}/{name}", text


def mounted_identities(replica: Replica) -> Iterator[tuple[str, str]]:
    """The folder of each identity in the pod, and the Secret that it comes from."""
    paths = {each["name"]: each["mountPath"] for each in replica.container["volumeMounts"]}
    for volume in replica.spec["volumes"]:
        path = paths.get(volume["name"], "")  # a sidecar's
        if volume["name"] == "identity":
            yield path, volume["secret"]["secretName"]
        for source in volume.get("projected", {}).get("sources", ()):
            [folder] = {each["path"].rpartition("/")[0] for each in source["secret"]["items"]}
            yield f"{path}/{folder}", source["secret"]["name"]
