"""What the charts render is recorded, so that a change of a template shows what it does.

`python -m tests.charts.test_chart_snapshots` records it anew, to be read before it is committed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from controlplane import resolve
from controlplane.pins import HELM, OPTIONAL_MODULES
from controlplane.request import request_from
from tests.charts.helm_rig import CLUSTER, FLEET, NAMESPACES, RELEASE, SCALETEST, VALUES, Helm

RECORDED = Path(__file__).with_name("snapshots")
# The chart and its files of values, later ones before earlier ones, by the snapshot's name.
RELEASES: Mapping[str, tuple[Path, tuple[str, ...]]] = {
    "fleet": (FLEET, ("fleet",)),
    "cluster": (CLUSTER, ("cluster",)),
    "scaletest": (SCALETEST, ("scaletest",)),
    "scaletest-karpenter": (SCALETEST, ("scaletest", "scaletest-karpenter")),
    "scaletest-host": (SCALETEST, ("scaletest", "scaletest-host")),
}


def rendered(helm: Helm, name: str) -> str:
    """All objects but CustomResourceDefinitions, which are files of the product themselves."""
    chart, values = RELEASES[name]
    files = [word for each in values for word in ("-f", VALUES / f"{each}.yaml")]
    namespace = NAMESPACES.get(chart, "scaletest")
    text = helm.run("template", RELEASE, chart, "-n", namespace, *files)
    objects = [each for each in yaml.safe_load_all(text) if each]
    own = [each for each in objects if each["kind"] != "CustomResourceDefinition"]
    own.sort(key=lambda each: (each["kind"], each["metadata"]["name"]))
    return yaml.safe_dump_all(own, sort_keys=True, width=100)


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_is_rendered_as_it_was_recorded(helm: Helm, name: str) -> None:
    recorded = (RECORDED / f"{name}.yaml").read_text()
    assert rendered(helm, name) == recorded, "python -m tests.charts.test_chart_snapshots"


def test_each_snapshot_is_of_a_release() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == set(RELEASES)


if __name__ == "__main__":
    RECORDED.mkdir(exist_ok=True)
    found = resolve.obtain([OPTIONAL_MODULES[HELM]], request_from(os.environ), print)
    with tempfile.TemporaryDirectory() as home:
        for each in RELEASES:
            text = rendered(Helm(found[HELM].path, Path(home)), each)
            (RECORDED / f"{each}.yaml").write_text(text)
