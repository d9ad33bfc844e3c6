from __future__ import annotations

import hashlib
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane import download as download_module
from controlplane.download import Unavailable, download
from controlplane.errors import BinaryError
from controlplane.pins import PINNED_MODULES, Platform
from controlplane.resolve import resolve
from tests.controlplane.controlplane_rig import ReleaseHost, Rig, released, serving, with_releases

BODY = b"x" * 3_000_000
SUM = hashlib.sha256(BODY).hexdigest()


def test_a_file_with_the_pinned_sum_is_left_in_place_and_its_bytes_are_reported(
    tmp_path: Path,
) -> None:
    seen: list[int] = []
    with serving(ReleaseHost({"/file": BODY})) as host:
        download(f"{host.url}/file", tmp_path / "file", SUM, seen.append)
    assert (tmp_path / "file").read_bytes() == BODY
    assert seen[-1] == len(BODY)
    assert len(seen) > 1


def test_a_file_with_another_sum_is_removed_and_both_sums_are_named(tmp_path: Path) -> None:
    expected = "0" * 64
    with serving(ReleaseHost({"/file": BODY})) as host, pytest.raises(BinaryError) as caught:
        download(f"{host.url}/file", tmp_path / "file", expected, lambda _: None)
    assert SUM in str(caught.value)
    assert expected in str(caught.value)
    assert f"{host.url}/file" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_body_that_breaks_off_is_an_unavailable_host_and_not_a_wrong_sum(tmp_path: Path) -> None:
    host = ReleaseHost({"/file": BODY}, cut={"/file"})
    with serving(host), pytest.raises(Unavailable, match="broke off"):
        download(f"{host.url}/file", tmp_path / "file", SUM, lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_reported_with_its_address(tmp_path: Path) -> None:
    with serving(ReleaseHost({})) as host, pytest.raises(Unavailable, match="404") as caught:
        download(f"{host.url}/file", tmp_path / "file", SUM, lambda _: None)
    assert f"{host.url}/file" in str(caught.value)


def test_a_host_that_accepts_but_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_module, "READ_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        with pytest.raises(Unavailable, match="timed out"):
            download(url, tmp_path / "file", SUM, lambda _: None)


def test_a_host_slower_than_a_build_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_module, "TOTAL_SECONDS", 0.0)
    with (
        serving(ReleaseHost({"/file": BODY})) as host,
        pytest.raises(Unavailable, match="slower than"),
    ):
        download(f"{host.url}/file", tmp_path / "file", SUM, lambda _: None)


def test_what_is_pinned_is_downloaded_and_nothing_is_built(tmp_path: Path) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    with serving(host):
        binaries = resolve(with_releases(rig.request(), host, sums), rig.lines.append)
    assert set(binaries.origin.values()) == {"downloaded"}
    assert binaries.versions["etcd"] == "3.7.3"
    assert rig.calls("build") == []
    assert rig.staging() == []


def test_what_is_not_pinned_is_built_and_its_host_is_not_asked(tmp_path: Path) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    del sums["kwok-0.8.0-linux-amd64"]
    with serving(host):
        binaries = resolve(with_releases(rig.request(), host, sums), rig.lines.append)
    assert binaries.origin["kwok"] == "built from source"
    assert binaries.origin["etcd"] == "downloaded"
    assert not any("kwok" in path for path in host.asked)


def test_a_wrong_sum_ends_the_resolution_and_installs_nothing_of_that_module(
    tmp_path: Path,
) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    sums["kube-scheduler-1.36.3-linux-amd64"] = "0" * 64
    with serving(host), pytest.raises(BinaryError, match="not the file that was pinned"):
        resolve(with_releases(rig.request(), host, sums), rig.lines.append)
    assert rig.binaries() == []
    assert rig.staging() == []


def test_a_host_that_does_not_answer_is_tried_once_and_a_build_takes_its_place(
    tmp_path: Path,
) -> None:
    rig, (_, sums) = Rig(tmp_path), released()
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        url = f"http://127.0.0.1:{closed_soon.getsockname()[1]}"
    urls = {module.name: url for module in PINNED_MODULES}
    request = replace(rig.request(), checksums=sums, release_base_urls=urls)
    binaries = resolve(request, rig.lines.append)
    assert set(binaries.origin.values()) == {"built from source"}
    assert len([line for line in rig.lines if "building from source instead" in line]) == 1


def test_releases_are_for_linux_so_other_systems_build(tmp_path: Path) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    request = replace(rig.request(), platform=Platform("darwin", "amd64"))
    with serving(host):
        binaries = resolve(with_releases(request, host, sums), rig.lines.append)
    assert set(binaries.origin.values()) == {"built from source"}
    assert host.asked == []


def test_an_archive_without_the_binary_is_named_with_the_member_it_lacks(tmp_path: Path) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    path = "/etcd/v3.7.3/etcd-v3.7.3-linux-amd64.tar.gz"
    host.files[path] = b"not an archive"
    sums["etcd-3.7.3-linux-amd64"] = hashlib.sha256(host.files[path]).hexdigest()
    with serving(host), pytest.raises(BinaryError, match="holds no file etcd-v3"):
        resolve(with_releases(rig.request(), host, sums), rig.lines.append)
