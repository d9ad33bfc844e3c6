"""On one small node every pod of a release finds its place, its volume and its image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kind.images.builder import Image
from kind.nodeimage.node import NodeImage
from loaddriver.kindrun.prerequisites import image_names
from loaddriver.kindrun.values import folders, kind_values, merged, volumes
from loaddriver.profile.loading import PROFILES, load_profile
from loaddriver.run.chart_values import chart_values

MADE_HERE = NodeImage("localhost/node:1", True, {"kube-apiserver": "1.35.0", "etcd": "3.6.1"})
KIND_NODE_IMAGE = NodeImage("kindest/node:v1.37.0", False, {})


def values(profile: str, *overrides: str) -> dict[str, Any]:
    return chart_values(load_profile(profile, PROFILES, overrides), overrides, None)


def of_kind(
    profile: str, image: NodeImage = MADE_HERE, cores: float = 2.0, overrides: tuple[str, ...] = ()
) -> dict[str, Any]:
    return kind_values(values(profile, *overrides), loaded(profile, *overrides), image, cores)


def loaded(profile: str, *overrides: str) -> dict[str, Image]:
    """The images that the node is given."""
    names = image_names(load_profile(profile, PROFILES, overrides).settings)
    return {name: Image(f"localhost/{name}:of-{name}", Path(f"{name}.tar")) for name in names}


def test_pods_run_the_images_that_the_node_was_given() -> None:
    found = of_kind("smoke")
    assert found["global"]["loaddriver"]["tag"] == "of-loaddriver"
    assert found["bigfleet"]["image"] == {"repository": "localhost/bigfleet", "tag": "of-bigfleet"}
    assert found["controlPlane"]["kwok"] == {"repository": "localhost/kwok", "tag": "of-kwok"}


def test_karpenter_has_its_image_in_place_of_bigfleets() -> None:
    found = of_kind("smoke", overrides=("system=karpenter",))
    images = {each: found["controlPlane"][each]["tag"] for each in ("karpenter", "kwok")}
    assert images == {"karpenter": "of-karpenter", "kwok": "of-kwok"}
    assert "image" not in found["bigfleet"]
    assert [each["metadata"]["name"] for each in volumes(values("smoke", "system=karpenter"))] == [
        "results"
    ]


def test_nested_control_planes_are_of_the_version_that_a_node_made_here_has() -> None:
    """A node with kind's own image can pull the chart's."""
    assert of_kind("smoke")["controlPlane"]["kubernetes"]["tag"] == "v1.35.0"
    assert of_kind("smoke")["controlPlane"]["etcd"]["tag"] == "3.6.1-0"
    assert "kubernetes" not in of_kind("smoke", KIND_NODE_IMAGE)["controlPlane"]


def test_each_claim_of_a_release_has_a_volume_of_its_class() -> None:
    """Eight shards, three coordinators, the results; folders are made under the same names."""
    found = list(volumes(values("shards-8")))
    classes = [each["spec"]["storageClassName"] for each in found]
    assert (classes.count("state"), classes.count("results")) == (11, 1)
    paths = {each["spec"]["hostPath"]["path"] for each in found}
    assert paths == set(folders(values("shards-8")).values())
    fleet, results = of_kind("shards-8")["bigfleet"], of_kind("shards-8")["results"]
    asked = {fleet[role]["storage"]["className"] for role in ("coordinator", "shard")}
    assert (asked, results["className"]) == ({"state"}, "results")


def test_requests_of_cpu_are_lowered_together() -> None:
    """So each pod keeps its share of full cores."""
    few, many = (of_kind("dev-50", cores=cores) for cores in (2.0, 64.0))
    runner, shard = (request(few, *path) / request(many, *path) for path in (RUNNER, SHARD))
    assert runner == pytest.approx(shard, rel=0.05)
    assert 0.02 < runner < 0.5
    assert (request(many, *RUNNER), request(many, *SHARD)) == (1000, 1000)


def test_workers_of_the_load_share_the_cores_with_all_other_pods() -> None:
    """Each counts; one alone is the runner's process."""
    one, nine = (of_kind("smoke", overrides=(f"load.workers={number}",)) for number in (1, 9))
    assert one == of_kind("smoke")
    assert request(nine, *RUNNER) < request(one, *RUNNER)
    assert request(nine, "load") == pytest.approx(request(nine, *RUNNER) / 2, abs=1)
    assert request(of_kind("smoke", cores=64.0, overrides=("load.workers=9",)), "load") == 500


def test_coordinators_have_enough_to_keep_their_term() -> None:
    """With a hundredth of a core each, two and six leaders of `shards-8` lost theirs."""
    found = of_kind("shards-8")
    assert request(found, *COORDINATOR) == 200
    assert request(of_kind("shards-8", cores=64.0), *COORDINATOR) == 250
    small = of_kind("shards-8", cores=1.4)
    assert 3 * request(small, *COORDINATOR) <= 150


COORDINATOR = ("bigfleet", "coordinator")
RUNNER = ("runner",)
SHARD = ("bigfleet", "shard")


def request(values: dict[str, Any], *path: str) -> int:
    """Millicores."""
    for key in (*path, "resources", "requests"):
        values = values[key]
    return int(str(values["cpu"]).removesuffix("m"))


def test_on_a_node_that_is_too_small_each_pod_requests_a_little_all_the_same() -> None:
    assert request(of_kind("dev-50", cores=1.0), *RUNNER) == 1


def test_files_are_merged_key_by_key_and_the_later_one_wins() -> None:
    assert merged({"a": {"b": 1, "c": 1}, "d": 1}, {"a": {"c": 2}, "e": {"f": 2}}) == {
        "a": {"b": 1, "c": 2},
        "d": 1,
        "e": {"f": 2},
    }
