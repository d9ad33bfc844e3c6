from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.errors import BinaryError, BinaryUsageError
from controlplane.locate import locate, parse_version, require_compatible
from controlplane.pins import NODE_MODULES
from controlplane.resolve import resolve
from tests.controlplane.controlplane_rig import PINNED_VERSIONS, Rig, give, printing, write_script


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("Kubernetes v1.36.3\n", "1.36.3"),
        ("etcd Version: 3.7.3\nGit SHA: unknown\nGo Version: go1.26.8\n", "3.7.3"),
        ("kwok version v0.8.0 go1.26.8 (linux/amd64)\n", "0.8.0"),
        ("Kubernetes v1.37.0-rc.1\n", "1.37.0-rc.1"),
        ("Client Version: v1.36.3\nKustomize Version: v5.8.1\n", "1.36.3"),
        ("CoreDNS-1.14.2\nlinux/amd64, go1.26.8, \n", "1.14.2"),
        ("kind version 0.33.0\n", "0.33.0"),
        ("usage: etcd [flags]\n", None),
    ],
)
def test_each_binary_words_its_version_differently_and_is_understood(
    output: str, version: str | None
) -> None:
    assert parse_version(output) == version


def test_given_binaries_come_first_and_need_neither_cache_nor_compiler(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    given = give(tmp_path / "given")
    request = replace(rig.request(PATH="/nowhere"), given_directories=(given,))
    binaries = resolve(request, rig.lines.append)
    assert binaries.kube_apiserver == given / "kube-apiserver"
    assert set(binaries.origin.values()) == {f"given in {given}"}
    assert rig.lines == []
    assert not request.directory.exists()


def test_the_first_given_directory_that_has_a_binary_wins(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    first, second = give(tmp_path / "first", "etcd"), give(tmp_path / "second")
    request = replace(rig.request(), given_directories=(first, second))
    found = locate(request, rig.lines.append)
    assert found["etcd"].path == first / "etcd"
    assert found["kwok"].path == second / "kwok"


def test_what_a_given_directory_lacks_is_got_elsewhere(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    given = give(tmp_path / "given", "etcd", "kube-apiserver")
    binaries = resolve(replace(rig.request(), given_directories=(given,)), rig.lines.append)
    assert binaries.origin["etcd"] == f"given in {given}"
    assert binaries.origin["kube-scheduler"] == "built from source"
    assert "cmd/kube-apiserver" not in rig.calls("build")[0]


def test_a_given_binary_of_another_version_is_used_and_reported(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    given = give(tmp_path / "given", etcd="3.6.8")
    binaries = resolve(replace(rig.request(), given_directories=(given,)), rig.lines.append)
    assert binaries.versions["etcd"] == "3.6.8"
    assert rig.lines == [f"using {given / 'etcd'}: version 3.6.8, pinned is 3.7.3"]


def test_a_given_binary_is_passed_over_when_another_kubernetes_was_asked_for(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    given = give(tmp_path / "given")
    request = replace(rig.request(), given_directories=(given,), kubernetes_version="1.35.4")
    found = locate(request, rig.lines.append)
    assert sorted(found) == ["etcd", "kwok"]
    assert len([line for line in rig.lines if "want 1.35.4" in line]) == 3


def test_where_only_the_stated_versions_will_do_another_given_one_is_passed_over(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    given = give(tmp_path / "given", etcd="3.6.8")
    request = replace(rig.request(), given_directories=(given,), exact_versions=True)
    found = locate(request, rig.lines.append)
    assert "etcd" not in found
    assert found["kwok"].path == given / "kwok"


def test_a_component_is_asked_for_its_version_in_its_own_way(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    [node, *_] = NODE_MODULES
    answers = {name: " ".join(node.version_command(name)) for name in node.components}
    for name, question in answers.items():
        script = f'#!/bin/sh\n[ "$*" = "{question}" ] && echo v1.36.3\n'
        write_script(tmp_path / "given" / name, script)
    request = replace(rig.request(), given_directories=(tmp_path / "given",))
    found = locate(request, rig.lines.append, (node,))
    assert {here.version for here in found.values()} == {"1.36.3"}
    assert answers["kubectl"] == "version --client"


def test_a_cached_binary_serves_only_its_own_version(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    resolve(rig.request(), rig.lines.append)
    assert len(locate(rig.request(), rig.lines.append)) == 5
    other = replace(rig.request(), kubernetes_version="1.35.4")
    assert sorted(locate(other, rig.lines.append)) == ["etcd", "kwok"]


def test_a_given_path_that_is_no_directory_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    request = replace(Rig(tmp_path).request(), given_directories=(tmp_path / "typo",))
    with pytest.raises(BinaryUsageError, match=r"typo is not a directory.*BIGFLEET_BINARIES"):
        locate(request, lambda _: None)


def test_a_given_directory_without_any_of_the_binaries_is_reported(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    (tmp_path / "empty").mkdir()
    request = replace(rig.request(), given_directories=(tmp_path / "empty",))
    assert locate(request, rig.lines.append) == {}
    assert rig.lines[0].startswith(f"{tmp_path / 'empty'} holds none of kube-apiserver")


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 3\n", "\x7fELF of another machine"])
def test_a_given_binary_that_does_not_run_is_named(tmp_path: Path, text: str) -> None:
    write_script(tmp_path / "given" / "etcd", text)
    request = replace(Rig(tmp_path).request(), given_directories=(tmp_path / "given",))
    with pytest.raises(BinaryError, match="given/etcd --version` does not run on this machine"):
        locate(request, lambda _: None)


def test_a_given_binary_that_says_no_version_is_named(tmp_path: Path) -> None:
    write_script(tmp_path / "given" / "kwok", "#!/bin/sh\necho hello\n")
    request = replace(Rig(tmp_path).request(), given_directories=(tmp_path / "given",))
    with pytest.raises(BinaryError, match="given/kwok --version` prints no version"):
        locate(request, lambda _: None)


def test_a_file_that_is_not_executable_is_not_taken_for_a_binary(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    given = give(tmp_path / "given")
    write_script(given / "etcd", printing(PINNED_VERSIONS["etcd"]))
    (given / "etcd").chmod(0o644)
    found = locate(replace(rig.request(), given_directories=(given,)), rig.lines.append)
    assert "etcd" not in found


@pytest.mark.parametrize("scheduler", ["1.36.0", "1.35.9"])
def test_a_scheduler_up_to_one_minor_release_older_is_accepted(scheduler: str) -> None:
    require_compatible([("kube-apiserver", "1.36.3"), ("kube-scheduler", scheduler)])


@pytest.mark.parametrize("scheduler", ["1.37.0", "1.34.9"])
def test_parts_further_apart_are_refused_with_the_way_out(scheduler: str) -> None:
    with pytest.raises(BinaryUsageError, match=r"Set KUBERNETES_VERSION=1\.36\.3"):
        require_compatible([("kube-apiserver", "1.36.3"), ("kube-scheduler", scheduler)])
