from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from kind.nodeimage.archive import Contents, write_archive
from kind.nodeimage.components import references


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        return {m.name: (opened.extractfile(m) or io.BytesIO()).read() for m in opened}


def written(tmp_path: Path, contents: Contents, name: str = "image.tar") -> Path:
    archive = tmp_path / name
    write_archive(archive, "registry.k8s.io/pause:1", contents, "arm64")
    return archive


def binary(tmp_path: Path) -> Path:
    path = tmp_path / "pause"
    path.write_bytes(b"\x7fELF")
    return path


def more(*names: str, time: int = 0) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.mtime, member.size, member.uname = time, len(name), "builder"
            archive.addfile(member, io.BytesIO(name.encode()))
    return buffer.getvalue()


def test_the_layer_goes_by_the_digest_of_its_bytes(tmp_path: Path) -> None:
    parts = members(written(tmp_path, Contents({"/pause": binary(tmp_path)})))
    config: dict[str, Any] = json.loads(parts["config.json"])
    digest = hashlib.sha256(parts["layer.tar"]).hexdigest()
    assert config["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{digest}"]}


def test_the_manifest_names_the_image_its_config_and_its_layer(tmp_path: Path) -> None:
    parts = members(written(tmp_path, Contents({"/pause": binary(tmp_path)})))
    [manifest] = json.loads(parts["manifest.json"])
    assert manifest["RepoTags"] == ["registry.k8s.io/pause:1"]
    assert {manifest["Config"], *manifest["Layers"]} == set(parts) - {"manifest.json"}


def test_the_config_states_platform_entrypoint_and_where_programs_are_looked_for(
    tmp_path: Path,
) -> None:
    contents = Contents({"/pause": binary(tmp_path)}, entrypoint=("/pause",))
    config = json.loads(members(written(tmp_path, contents))["config.json"])
    assert (config["os"], config["architecture"]) == ("linux", "arm64")
    assert config["config"]["Entrypoint"] == ["/pause"]
    assert "/usr/local/bin" in config["config"]["Env"][0]


def test_a_program_is_executable_in_the_image_and_belongs_to_root(tmp_path: Path) -> None:
    parts = members(written(tmp_path, Contents({"/usr/bin/pause": binary(tmp_path)})))
    with tarfile.open(fileobj=io.BytesIO(parts["layer.tar"])) as layer:
        [program] = layer.getmembers()
    assert (program.name, program.mode) == ("usr/bin/pause", 0o755)
    assert (program.uid, program.gid, program.mtime) == (0, 0, 0)


def test_the_same_files_give_the_same_bytes_whenever_and_in_whatever_order(tmp_path: Path) -> None:
    programs = {"/pause": binary(tmp_path)}
    one = written(tmp_path, Contents(programs, more("usr/a", "usr/b", time=1)), "one.tar")
    other = written(tmp_path, Contents(programs, more("usr/b", "usr/a", time=2)), "other.tar")
    assert one.read_bytes() == other.read_bytes()


def test_files_that_come_along_keep_their_content(tmp_path: Path) -> None:
    parts = members(written(tmp_path, Contents({}, more("usr/lib/libm.so"))))
    with tarfile.open(fileobj=io.BytesIO(parts["layer.tar"])) as layer:
        library = layer.extractfile("usr/lib/libm.so")
        assert library is not None
        assert library.read() == b"usr/lib/libm.so"


def test_every_component_goes_by_the_name_that_kubeadm_will_look_for() -> None:
    kubernetes = (
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
    )
    versions = dict.fromkeys(kubernetes, "1.36.3")
    names = references({**versions, "etcd": "3.7.3", "coredns": "1.14.2", "pause": "3.10.2"})
    assert names["kube-proxy"] == "registry.k8s.io/kube-proxy:v1.36.3"
    assert names["etcd"] == "registry.k8s.io/etcd:3.7.3-0"
    assert names["coredns"] == "registry.k8s.io/coredns/coredns:v1.14.2"
    assert names["pause"] == "registry.k8s.io/pause:3.10.2"
