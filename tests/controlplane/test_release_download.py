from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane import download as download_module
from controlplane.download import Checksum, Unavailable, download
from controlplane.errors import BinaryError
from controlplane.pins import METRICS_SERVER, PINNED_MODULES
from controlplane.platforms import Platform
from controlplane.request import Binaries
from controlplane.resolve import resolve
from tests.controlplane.controlplane_rig import ReleaseHost, Rig, released, serving, with_releases

BODY = b"x" * 3_000_000
SUM = Checksum(hashlib.sha256(BODY).hexdigest(), "pinned checksum")
WRONG = "0" * 64
PINNED = "downloaded, pinned checksum"
BUILT = "built from source"
CHANGED = "built from changed source"


def test_a_file_with_the_expected_sum_is_left_in_place_and_its_bytes_are_reported(
    tmp_path: Path,
) -> None:
    seen: list[int] = []
    with serving(ReleaseHost({"/file": BODY})) as host:
        download(f"{host.url}/file", tmp_path / "file", SUM, seen.append)
    assert (tmp_path / "file").read_bytes() == BODY
    assert seen[-1] == len(BODY)
    assert len(seen) > 1


def test_a_file_with_another_sum_is_removed_and_the_error_lists_both_sums(tmp_path: Path) -> None:
    expected = Checksum(WRONG, "checksum published by example.org")
    with serving(ReleaseHost({"/file": BODY})) as host, pytest.raises(BinaryError) as caught:
        download(f"{host.url}/file", tmp_path / "file", expected, lambda _: None)
    assert SUM.sha256 in str(caught.value)
    assert f"expected {WRONG} (checksum published by example.org)" in str(caught.value)
    assert "nothing was installed" in str(caught.value)
    assert f"{host.url}/file" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_body_is_an_unavailable_host_and_not_a_wrong_sum(tmp_path: Path) -> None:
    host = ReleaseHost({"/file": BODY}, cut={"/file"})
    with serving(host), pytest.raises(Unavailable, match="truncated"):
        download(f"{host.url}/file", tmp_path / "file", SUM, lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_reported_with_its_address(tmp_path: Path) -> None:
    with serving(ReleaseHost({})) as host, pytest.raises(Unavailable, match="404") as caught:
        download(f"{host.url}/file", tmp_path / "file", SUM, lambda _: None)
    assert f"{host.url}/file" in str(caught.value)


def test_a_host_that_accepts_but_never_answers_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_module, "READ_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        with pytest.raises(Unavailable, match="timed out"):
            download(url, tmp_path / "file", SUM, lambda _: None)


def test_a_host_slower_than_a_build_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_module, "TOTAL_SECONDS", 0.0)
    with (
        serving(ReleaseHost({"/file": BODY})) as host,
        pytest.raises(Unavailable, match="took longer than"),
    ):
        download(f"{host.url}/file", tmp_path / "file", SUM, lambda _: None)


SCHEDULER = "kube-scheduler-1.36.3-linux-amd64"
SCHEDULER_SUM = "/kubernetes/v1.36.3/bin/linux/amd64/kube-scheduler.sha256"
SCHEDULER_FILE = "/kubernetes/v1.36.3/bin/linux/amd64/kube-scheduler"


def resolved(
    rig: Rig, host: ReleaseHost, sums: dict[str, str], optional: tuple[str, ...] = ()
) -> Binaries:
    with serving(host):
        return resolve(with_releases(rig.request(), host, sums), rig.lines.append, optional)


def published_by(host: ReleaseHost) -> str:
    return f"downloaded, checksum published by {host.url.removeprefix('http://')}"


def test_a_file_with_a_pin_is_downloaded_and_its_published_sum_is_not_read(tmp_path: Path) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    binaries = resolved(rig, host, sums)
    assert binaries.origin == dict.fromkeys(binaries.origin, PINNED) | {"kwok": CHANGED}
    assert binaries.versions["etcd"] == "3.7.3"
    assert not any("sha256" in path.lower() for path in host.asked)
    assert [call.split(":")[0].rpartition("/")[2] for call in rig.calls("build")] == ["kwok"]
    assert rig.staging() == []


def test_a_file_without_a_pin_is_downloaded_and_compared_with_its_published_sum(
    tmp_path: Path,
) -> None:
    rig, (host, _) = Rig(tmp_path), released()
    binaries = resolved(rig, host, {})
    assert binaries.origin["kube-scheduler"] == binaries.origin["etcd"] == published_by(host)
    assert rig.calls("build") != []  # kwok is changed


def test_a_pin_outranks_a_wrong_published_sum(tmp_path: Path) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    host.files[SCHEDULER_SUM] = f"{WRONG}\n".encode()
    assert resolved(rig, host, sums).origin["kube-scheduler"] == PINNED


def test_a_wrong_published_sum_is_an_error_and_installs_nothing_of_that_module(
    tmp_path: Path,
) -> None:
    rig, (host, _) = Rig(tmp_path), released()
    host.files[SCHEDULER_SUM] = f"{WRONG}\n".encode()
    with pytest.raises(BinaryError, match=f"expected {WRONG} .checksum published by 127"):
        resolved(rig, host, {})
    assert rig.binaries() == []
    assert rig.staging() == []


def test_a_wrong_pin_is_an_error_and_installs_nothing_of_that_module(tmp_path: Path) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    sums[SCHEDULER] = WRONG
    with pytest.raises(BinaryError, match=f"expected {WRONG} .pinned checksum"):
        resolved(rig, host, sums)
    assert rig.binaries() == []
    assert rig.staging() == []


@pytest.mark.parametrize("listing", [None, b"<html>sign in</html>", WRONG.encode() + b"  other\n"])
def test_a_file_with_neither_pin_nor_published_sum_is_built_with_one_progress_line(
    tmp_path: Path, listing: bytes | None
) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    del sums[SCHEDULER], host.files[SCHEDULER_SUM]
    if listing is not None:
        host.files[SCHEDULER_SUM] = listing
    binaries = resolved(rig, host, sums)
    assert binaries.origin["kube-scheduler"] == BUILT
    assert binaries.origin["kube-apiserver"] == binaries.origin["etcd"] == PINNED
    assert SCHEDULER_FILE not in host.asked
    assert len([line for line in rig.lines if "; building from source" in line]) == 1


def test_a_missing_published_sum_does_not_matter_to_a_file_with_a_pin(tmp_path: Path) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    del host.files[SCHEDULER_SUM]
    assert resolved(rig, host, sums).origin["kube-scheduler"] == PINNED


@pytest.mark.parametrize("pinned", [True, False])
def test_a_file_that_the_host_does_not_have_is_built_and_the_others_are_downloaded(
    tmp_path: Path, pinned: bool
) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    del host.files[SCHEDULER_FILE]
    binaries = resolved(rig, host, sums if pinned else {})
    assert binaries.origin["kube-scheduler"] == BUILT
    assert binaries.origin["kube-apiserver"].startswith("downloaded")
    assert len([line for line in rig.lines if "Error 404" in line]) == 1


def test_a_file_of_a_project_without_published_sums_is_built_and_its_host_is_not_asked(
    tmp_path: Path,
) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    del sums["metrics-server-0.9.0-linux-amd64"]
    assert resolved(rig, host, sums, (METRICS_SERVER,)).origin[METRICS_SERVER] == BUILT
    assert not any(METRICS_SERVER in path for path in host.asked)
    assert len([line for line in rig.lines if "no checksum is pinned or published" in line]) == 1


def test_a_project_that_is_changed_here_is_built_and_its_host_is_not_asked(tmp_path: Path) -> None:
    """What is released lacks the change."""
    rig, (host, sums) = Rig(tmp_path), released()
    assert resolved(rig, host, sums).origin["kwok"] == CHANGED
    assert not any("kwok" in path for path in host.asked)


@contextmanager
def silent_host() -> Iterator[tuple[str, list[socket.socket]]]:
    """A host that accepts connections and never answers; lists the connections."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connections.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", connections
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in connections:
                connection.close()


@pytest.mark.parametrize("pinned", [True, False])
def test_a_silent_host_is_asked_once_and_everything_is_built_with_one_progress_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pinned: bool
) -> None:
    monkeypatch.setattr(download_module, "READ_SECONDS", 0.1)
    rig, (_, sums) = Rig(tmp_path), released()
    with silent_host() as (url, connections):
        urls = {module.name: url for module in PINNED_MODULES}
        request = replace(
            rig.request(),
            from_source=False,
            checksums=sums if pinned else {},
            release_base_urls=urls,
        )
        binaries = resolve(request, rig.lines.append)
    assert set(binaries.origin.values()) == {BUILT, CHANGED}
    assert len(connections) == 1
    assert len([line for line in rig.lines if "timed out; building from source" in line]) == 1


@pytest.mark.parametrize("pinned", [True, False])
def test_a_host_that_refuses_connections_is_asked_once(tmp_path: Path, pinned: bool) -> None:
    rig, (_, sums) = Rig(tmp_path), released()
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        url = f"http://127.0.0.1:{closed_soon.getsockname()[1]}"
    urls = {module.name: url for module in PINNED_MODULES}
    request = replace(
        rig.request(), from_source=False, checksums=sums if pinned else {}, release_base_urls=urls
    )
    assert set(resolve(request, rig.lines.append).origin.values()) == {BUILT, CHANGED}
    assert len([line for line in rig.lines if "refused; building from source" in line]) == 1


def test_other_systems_than_linux_build_with_one_progress_line(tmp_path: Path) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    request = replace(rig.request(), platform=Platform("darwin", "amd64"))
    with serving(host):
        binaries = resolve(with_releases(request, host, sums), rig.lines.append)
    assert set(binaries.origin.values()) == {BUILT, CHANGED}
    assert host.asked == []
    assert len([line for line in rig.lines if "releases are for linux" in line]) == 1


def test_a_request_to_build_asks_no_host(tmp_path: Path) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    with serving(host):
        request = replace(with_releases(rig.request(), host, sums), from_source=True)
        binaries = resolve(request, rig.lines.append)
    assert set(binaries.origin.values()) == {BUILT, CHANGED}
    assert host.asked == []


def test_an_archive_without_the_binary_is_an_error_that_names_the_member(tmp_path: Path) -> None:
    rig, (host, sums) = Rig(tmp_path), released()
    path = "/etcd/v3.7.3/etcd-v3.7.3-linux-amd64.tar.gz"
    host.files[path] = b"not an archive"
    sums["etcd-3.7.3-linux-amd64"] = hashlib.sha256(host.files[path]).hexdigest()
    with pytest.raises(BinaryError, match="does not contain etcd-v3"):
        resolved(rig, host, sums)
