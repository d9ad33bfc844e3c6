"""The cluster chart installs the CRDs, rules and policies of the product itself."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from bigfleet.api.install import CRDS, MANIFESTS, SYSTEM_NAMESPACE
from tests.charts.helm_rig import CLUSTER, VALUES, Helm, Object, of_kind

KEEP = {"helm.sh/resource-policy": "keep"}


def product_objects() -> Iterator[Object]:
    """What `bigfleet.api.install` applies."""
    for path in (*CRDS.glob("*.yaml"), *MANIFESTS.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


def by_name(objects: Iterable[Object]) -> dict[tuple[str, str, str], Any]:
    """Objects without what Helm adds to their metadata."""
    found = {}
    for each in objects:
        metadata = each["metadata"]
        bare = {k: v for k, v in metadata.items() if k not in ("labels", "annotations")}
        key = (each["kind"], metadata.get("namespace", ""), metadata["name"])
        assert key not in found
        found[key] = {**each, "metadata": bare}
    return found


def rendered(helm: Helm, name: str, *flags: str) -> list[Object]:
    """The chart's objects of the product's files."""
    objects = helm.template(CLUSTER, VALUES / f"{name}.yaml", *flags)
    label = "app.kubernetes.io/component"
    return [each for each in objects if each["metadata"]["labels"].get(label) == "installation"]


def test_each_file_of_the_product_is_linked_into_the_chart() -> None:
    """A link cannot differ from its file, and a new file must not be forgotten."""
    for folder, product in (("crds", CRDS), ("manifests", MANIFESTS)):
        links = {each.name: each for each in (CLUSTER / "files" / folder).iterdir()}
        assert set(links) == {each.name for each in product.glob("*.yaml")}
        for name, link in links.items():
            assert link.is_symlink()
            assert not link.readlink().is_absolute()
            assert link.resolve() == (product / name).resolve()


def test_the_chart_installs_what_the_product_installs(helm: Helm) -> None:
    """All of it, apart from the release's own namespace, which Helm creates."""
    expected = by_name(product_objects())
    del expected["Namespace", "", SYSTEM_NAMESPACE]
    assert by_name(rendered(helm, "cluster-everything")) == expected


def test_nobody_may_play_machines_unless_machines_are_simulated(helm: Helm) -> None:
    expected = by_name(product_objects())
    del expected["Namespace", "", SYSTEM_NAMESPACE]
    left_out = {key for key in expected if key[2] == "fake-host"}
    assert {kind for kind, _, _ in left_out} == {"ClusterRole", "ClusterRoleBinding"}
    assert set(by_name(rendered(helm, "cluster"))) == set(expected) - left_out


def test_custom_resources_survive_the_release(helm: Helm) -> None:
    """Deleting a CustomResourceDefinition deletes all objects of its kind."""
    found = rendered(helm, "cluster")
    definitions = of_kind(found, "CustomResourceDefinition")
    assert len(definitions) == len(list(CRDS.glob("*.yaml")))
    for each in found:
        kept = each["metadata"].get("annotations", {}).items() >= KEEP.items()
        assert kept == (each in definitions)


def test_definitions_can_be_left_to_something_else(helm: Helm) -> None:
    assert not of_kind(rendered(helm, "cluster-operator-only"), "CustomResourceDefinition")


def test_a_packaged_chart_has_the_files_and_no_links(helm: Helm, tmp_path: Path) -> None:
    """It is used without the repository."""
    helm.run("package", CLUSTER, "-d", tmp_path)
    [package] = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        for folder, product in (("crds", CRDS), ("manifests", MANIFESTS)):
            for path in product.glob("*.yaml"):
                member = archive.getmember(f"{CLUSTER.name}/files/{folder}/{path.name}")
                assert member.isreg()
                content = archive.extractfile(member)
                assert content is not None
                assert content.read() == path.read_bytes()
