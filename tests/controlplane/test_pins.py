from __future__ import annotations

import re

import pytest

from controlplane.build import go_release_of, staging_version
from controlplane.errors import BinaryError, BinaryUsageError
from controlplane.pins import (
    ALL_MODULES,
    COMPONENTS,
    GO_RELEASE_NEEDED,
    MODULES_DIRECTORY,
    PINNED_MODULES,
    Module,
    is_pinned,
    wanted_modules,
    wanted_node_modules,
)
from controlplane.platforms import platform_named

EACH_MODULE = pytest.mark.parametrize(
    "module", ALL_MODULES, ids=lambda module: "+".join(module.components)
)


def go_mod(module: Module) -> str:
    return (MODULES_DIRECTORY / module.name / "go.mod").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "module",
    # The source of these lies beside their go.mod.
    [module for module in ALL_MODULES if module.packages != {module.name: "."}],
    ids=lambda module: "+".join(module.components),
)
def test_the_go_module_requires_the_version_that_is_pinned(module: Module) -> None:
    package = next(iter(module.packages.values()))
    path = package.split("/cmd/")[0]
    assert re.search(rf"^\t{path} v{module.version} // indirect$", go_mod(module), re.MULTILINE)


@EACH_MODULE
def test_the_go_module_lists_the_packages_that_are_built_as_its_tools(module: Module) -> None:
    tools = re.findall(r"^(?:tool |\t)([^\s(]+)$", go_mod(module), re.MULTILINE)
    sharing = [other for other in ALL_MODULES if other.name == module.name]
    packages = {package for other in sharing for package in other.packages.values()}
    assert tools == sorted(packages - {"."})


@EACH_MODULE
def test_no_go_module_asks_for_a_newer_compiler_than_people_are_told_to_install(
    module: Module,
) -> None:
    release = tuple(int(part) for part in go_release_of(go_mod(module)).split(".")[:2])
    assert release <= GO_RELEASE_NEEDED


def test_staging_modules_are_replaced_by_those_of_the_same_kubernetes_release() -> None:
    kubernetes = PINNED_MODULES[0]
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) (\S+)$", go_mod(kubernetes), re.MULTILINE)
    wanted = staging_version(kubernetes.version)
    assert len(replaced) == 33
    assert all(name == other and version == wanted for name, other, version in replaced)


def test_the_five_components_are_known_in_a_fixed_order() -> None:
    assert COMPONENTS == (
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "etcd",
        "kwok",
    )


def test_kubernetes_states_its_own_version_through_the_linker() -> None:
    flags = wanted_modules("1.35.4")[0].linker_flags.split()
    assert "k8s.io/component-base/version.gitVersion=v1.35.4" in flags
    assert "k8s.io/component-base/version.gitMinor=35" in flags


def test_another_kubernetes_version_changes_neither_etcd_nor_kwok() -> None:
    modules = wanted_modules("v1.35.4")
    assert [module.version for module in modules] == ["1.35.4", "3.7.3", "0.8.0"]
    assert [is_pinned(module) for module in modules] == [False, True, True]


def test_a_node_gets_the_kubernetes_that_was_asked_for() -> None:
    modules = wanted_node_modules("1.35.4")
    assert [module.version for module in modules] == ["1.35.4", "1.14.2", "3.10.2"]
    assert modules[0].components == ("kubeadm", "kubectl", "kubelet", "kube-proxy")


def test_asking_for_the_pinned_kubernetes_version_uses_the_pinned_module() -> None:
    assert is_pinned(wanted_modules("1.36.3")[0])


@pytest.mark.parametrize(
    "version", ["1.36", "latest", "2.0.0", "1.36.3; rm", "1.36.3-", "../1.2.3"]
)
def test_a_version_that_is_no_full_release_number_is_refused(version: str) -> None:
    with pytest.raises(BinaryUsageError, match="KUBERNETES_VERSION"):
        wanted_modules(version)


def test_platforms_are_named_as_go_names_them() -> None:
    assert str(platform_named("Linux", "x86_64")) == "linux-amd64"
    assert str(platform_named("Darwin", "arm64")) == "darwin-arm64"


@pytest.mark.parametrize(("system", "machine"), [("Windows", "AMD64"), ("Linux", "riscv64")])
def test_a_platform_without_binaries_is_refused_by_name(system: str, machine: str) -> None:
    with pytest.raises(BinaryError, match=machine):
        platform_named(system, machine)
