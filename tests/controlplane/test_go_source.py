from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.build import (
    generated_go_mod,
    go_release_of,
    staging_modules,
    staging_version,
)
from controlplane.errors import BinaryError
from controlplane.pins import wanted_modules
from controlplane.resolve import resolve
from tests.controlplane.controlplane_rig import Rig

RELEASED = """\
module k8s.io/kubernetes

go 1.25.0

godebug default=go1.25

require (
\tk8s.io/api v0.0.0
\tk8s.io/klog/v2 v2.130.1
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/client-go => ./staging/src/k8s.io/client-go
)
"""


def test_staging_modules_are_those_a_release_replaces_from_its_own_tree() -> None:
    assert staging_modules(RELEASED) == ("k8s.io/api", "k8s.io/client-go")


def test_a_release_without_staging_modules_is_refused() -> None:
    with pytest.raises(BinaryError, match="staging"):
        staging_modules("module k8s.io/kubernetes\n\ngo 1.12\n")


def test_a_go_mod_without_a_go_line_is_refused() -> None:
    with pytest.raises(BinaryError, match="go line"):
        go_release_of("module k8s.io/kubernetes\n")


@pytest.mark.parametrize(
    ("release", "staged"), [("1.35.4", "v0.35.4"), ("1.37.0-rc.1", "v0.37.0-rc.1")]
)
def test_staging_modules_carry_minor_and_patch_of_their_release(release: str, staged: str) -> None:
    assert staging_version(release) == staged


def test_a_generated_module_names_only_the_release_its_tools_and_its_staging_modules() -> None:
    text = generated_go_mod(wanted_modules("1.35.4")[0], "1.25.0", ["k8s.io/api"])
    assert text.split("\n\n") == [
        "module bigfleet/controlplane/kubernetes",
        "go 1.25.0",
        "tool (\n\tk8s.io/kubernetes/cmd/kube-apiserver\n"
        "\tk8s.io/kubernetes/cmd/kube-controller-manager\n"
        "\tk8s.io/kubernetes/cmd/kube-scheduler\n)",
        "require k8s.io/kubernetes v1.35.4",
        "replace (\n\tk8s.io/api => k8s.io/api v0.35.4\n)\n",
    ]


def test_another_release_is_built_in_a_module_generated_from_its_own_go_mod(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    (rig.root / "released.mod").write_text(RELEASED, encoding="utf-8")
    request = replace(rig.request(), kubernetes_version="1.35.4")
    binaries = resolve(request, rig.lines.append)
    assert binaries.versions["kube-scheduler"] == "1.35.4"
    tidied = (rig.root / "tidied.mod").read_text(encoding="utf-8")
    assert "k8s.io/client-go => k8s.io/client-go v0.35.4" in tidied
    assert "go 1.25.0" in tidied
    assert ".staging-kubernetes-" in rig.calls("build")[0].split(":")[0]
