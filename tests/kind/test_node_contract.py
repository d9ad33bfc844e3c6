from __future__ import annotations

import configparser
import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

import kind.nodeimage.image as node_image
from controlplane.module_files import module_files
from controlplane.pins import KIND_MODULE
from controlplane.request import BinaryRequest, request_from
from kind.errors import KindError
from kind.nodeimage.image import KIND_NODE_IMAGE, NODE_BASE
from kind.nodeimage.kind_files import copy_kind_files, render_templates

FILES = Path(node_image.__file__).parent / "files"
BLANKS = {"@PAUSE_IMAGE@": "pause:1", "@POD_SUBNET@": "10.1/16", "@SERVICE_SUBNET@": "10.2/16"}


@pytest.fixture(scope="module")
def kind_module() -> Path:
    """The pinned kind's own files."""
    if shutil.which("go") is None:
        pytest.skip("kind's files are fetched with Go, which is not installed")
    return module_files(KIND_MODULE, "sigs.k8s.io/kind", request_from(os.environ))


def test_the_contract_comes_from_the_pinned_kind_with_rights_that_work(
    kind_module: Path, tmp_path: Path
) -> None:
    copy_kind_files(kind_module, tmp_path)
    entrypoint = tmp_path / "usr/local/bin/entrypoint"
    assert entrypoint.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "kind/bin/mount-product-files.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "etc/systemd/system/kubelet.service").stat().st_mode & 0o777 == 0o644
    assert not (tmp_path / "etc/containerd/config.toml").exists()


def test_the_image_asked_for_beforehand_is_the_one_that_this_kind_would_pull(
    kind_module: Path,
) -> None:
    defaults = kind_module / "pkg/apis/config/defaults/image.go"
    stated = re.search(r'const Image = "(.*)"', defaults.read_text())
    assert stated is not None
    assert f"docker.io/{stated[1]}" == KIND_NODE_IMAGE


def test_a_kind_that_is_laid_out_differently_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(KindError, match="crictl"):
        copy_kind_files(tmp_path / "kind", tmp_path / "contract")


def test_no_blank_is_left_in_the_images_files(tmp_path: Path) -> None:
    render_templates(FILES, tmp_path, BLANKS)
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(texts) == len([path for path in FILES.rglob("*") if path.is_file()])
    assert not [text for text in texts if re.search(r"@[A-Z_]+@", text)]


def test_every_blank_is_one_that_some_file_has() -> None:
    texts = "".join(path.read_text() for path in FILES.rglob("*") if path.is_file())
    assert all(blank in texts for blank in BLANKS)


def test_containerd_uses_the_pause_image_that_the_node_image_brings(tmp_path: Path) -> None:
    render_templates(FILES, tmp_path, BLANKS)
    config = tomllib.loads((tmp_path / "etc/containerd/config.toml").read_text())
    assert config["plugins"]["io.containerd.grpc.v1.cri"]["sandbox_image"] == "pause:1"


@pytest.mark.parametrize("unit", sorted(FILES.rglob("*.service")), ids=lambda path: path.stem)
def test_a_unit_asks_for_no_right_that_a_container_may_lack(unit: Path) -> None:
    """Limits and scores of the out-of-memory killer fail without CAP_SYS_RESOURCE."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.read_text())
    settings = set(parser["Service"])
    assert "ExecStart" in settings
    assert not [name for name in settings if name.startswith("Limit") or name == "OOMScoreAdjust"]


def test_what_units_start_is_among_the_installed_packages() -> None:
    assert {"containerd", "iptables", "conntrack", "jq", "systemd-sysv"} <= set(NODE_BASE.packages)


def test_an_images_name_changes_with_any_of_its_versions(tmp_path: Path) -> None:
    def named(version: str | None) -> str:
        request = request_from({"HOME": str(tmp_path)}, kubernetes_version=version)
        return made(request)

    def made(request: BinaryRequest) -> str:
        return node_image.local_node_image(request).reference

    assert named(None) == named("1.36.3")
    assert named("1.35.4") != named("1.36.3")
    assert named("1.35.4").startswith("localhost/bigfleet-kind-node:v1.35.4-")
