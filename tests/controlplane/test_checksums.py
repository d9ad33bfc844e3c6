from __future__ import annotations

import json
from pathlib import Path

import pytest

from controlplane.checksums import (
    add_checksums,
    fetch_published_sums,
    pinned_checksums,
    published_sum,
)
from controlplane.errors import BinaryError
from controlplane.pins import PINNED_MODULES, filled
from tests.controlplane.controlplane_rig import ReleaseHost, serving

ONE, OTHER = "1" * 64, "a" * 64


def published() -> ReleaseHost:
    """Lists of sums as the projects publish them: a lone sum, or lines of sum and name."""
    files = {}
    for module in PINNED_MODULES:
        for architecture in ("amd64", "arm64"):
            for component in module.components:
                template = module.release.checksum_path or "none"
                path = filled(template, module, component, architecture)
                names = [f"etcd-v3.7.3-linux-{kind}.tar.gz" for kind in ("amd64", "arm64")]
                listing = f"{ONE}  {names[0]}\n{OTHER}  {names[1]}\n"
                files[f"/{module.name}/{path}"] = (
                    listing if module.name == "etcd" else f"{ONE}\n"
                ).encode()
    return ReleaseHost(files)


def test_the_shipped_checksums_are_well_formed() -> None:
    assert isinstance(pinned_checksums(), dict)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("[]", "one JSON object"), ("{", "cannot read"), ('{"etcd": "abc"}', "etcd: 'abc'")],
)
def test_a_malformed_pin_file_is_named_with_its_fault(
    tmp_path: Path, content: str, complaint: str
) -> None:
    path = tmp_path / "checksums.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BinaryError, match=complaint) as caught:
        pinned_checksums(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("listing", "found"),
    [
        (f"{ONE}\n", ONE),
        (f"{ONE}  a\n{OTHER}  b\n", OTHER),
        (f"{ONE} *b\n", ONE),
        (f"{ONE.upper()}  b\n", ONE),
        (f"{ONE}  a\n", None),
        ("<html>not found</html>", None),
        ("\n", None),
    ],
)
def test_a_sum_is_taken_from_a_listing_only_for_the_file_it_names(
    listing: str, found: str | None
) -> None:
    assert published_sum(listing, "b") == found


def test_pinning_asks_for_both_architectures_and_leaves_out_what_publishes_no_sums() -> None:
    lines: list[str] = []
    with serving(published()) as host:
        sums = fetch_published_sums(PINNED_MODULES, host.urls(), lines.append)
    assert len(sums) == 8
    assert sums["etcd-3.7.3-linux-arm64"] == OTHER
    assert sums["kube-apiserver-1.36.3-linux-amd64"] == ONE
    assert any(line.startswith("kwok: ") and "from source" in line for line in lines)


def test_pinning_stops_when_a_listing_lacks_the_file() -> None:
    host = published()
    host.files["/etcd/v3.7.3/SHA256SUMS"] = f"{ONE}  something-else\n".encode()
    with serving(host), pytest.raises(BinaryError, match="lists no sum for v3"):
        fetch_published_sums(PINNED_MODULES, host.urls(), lambda _: None)


def test_pinning_stops_when_the_host_has_no_such_listing() -> None:
    with serving(ReleaseHost({})) as host, pytest.raises(BinaryError, match="nothing was pinned"):
        fetch_published_sums(PINNED_MODULES, host.urls(), lambda _: None)


def test_new_sums_are_added_to_those_already_pinned(tmp_path: Path) -> None:
    path = tmp_path / "checksums.json"
    path.write_text(json.dumps({"etcd-3.7.2-linux-amd64": ONE}), encoding="utf-8")
    add_checksums({"etcd-3.7.3-linux-amd64": OTHER}, path)
    assert pinned_checksums(path) == {
        "etcd-3.7.2-linux-amd64": ONE,
        "etcd-3.7.3-linux-amd64": OTHER,
    }
    assert [entry.name for entry in tmp_path.iterdir()] == ["checksums.json"]
