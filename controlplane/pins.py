"""The binaries in use: their versions, Go modules and release hosts.

All versions except that of Kubernetes are fixed by the modules under modules/. Another Kubernetes
version can be requested; its binaries always come from one release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from controlplane.errors import BinaryUsageError

MODULES_DIRECTORY = Path(__file__).parent / "modules"
CHANGES = "changes.patch"
GO_RELEASE_NEEDED = (1, 26)

_VERSION = re.compile(r"\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?")
_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class BuildSpace:
    """Bytes that a build with empty caches writes, by location."""

    module_cache_bytes: int
    build_cache_bytes: int
    scratch_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class Release:
    """URLs of released Linux builds, as templates of {version}, {architecture}, {component}.

    checksum_path is None if we know of no published checksums. archive_member is None if the
    released file is the binary itself.
    """

    base_url: str
    file_path: str
    checksum_path: str | None
    archive_member: str | None


@dataclass(frozen=True)
class Module:
    """A Go module that pins the binaries of a project, and what a build of it takes.

    version_arguments is keyed by component: its version command, if not --version.
    changed is the Go module that CHANGES, beside go.mod, is applied to.
    version_variable is the variable of version_package that holds the version.
    """

    name: str
    version: str
    packages: Mapping[str, str]
    release: Release
    space: BuildSpace
    usual_build_time: str
    version_package: str | None = None
    version_variable: str = "gitVersion"
    version_arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changed: str | None = None

    @property
    def components(self) -> tuple[str, ...]:
        return tuple(self.packages)

    def version_command(self, component: str) -> tuple[str, ...]:
        """The arguments that make a component print its version."""
        return self.version_arguments.get(component, ("--version",))

    @property
    def linker_flags(self) -> str:
        """Strip symbols; set the version if the source tree has a placeholder."""
        if self.version_package is None:
            return "-s -w"
        major, minor = self.version.split(".")[:2]
        stated = {
            self.version_variable: f"v{self.version}",
            "gitMajor": major,
            "gitMinor": minor,
            "gitTreeState": "clean",
        }
        return "-s -w " + " ".join(f"-X {self.version_package}.{k}={v}" for k, v in stated.items())


_NEVER_RELEASED = Release(base_url="", file_path="", checksum_path=None, archive_member=None)


def _space(module_cache: int, build_cache: int, scratch: int, output: int) -> BuildSpace:
    sizes = (module_cache, build_cache, scratch, output)
    return BuildSpace(*(mebibytes * _MEBIBYTE for mebibytes in sizes))


_KUBERNETES = Module(
    name="kubernetes",
    version="1.36.3",
    packages=MappingProxyType(
        {
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        }
    ),
    release=Release(
        base_url="https://dl.k8s.io",
        file_path="v{version}/bin/linux/{architecture}/{component}",
        checksum_path="v{version}/bin/linux/{architecture}/{component}.sha256",
        archive_member=None,
    ),
    space=_space(module_cache=1200, build_cache=3200, scratch=1200, output=300),
    usual_build_time="5 to 7 min",
    version_package="k8s.io/component-base/version",
)
_ETCD = Module(
    name="etcd",
    version="3.7.3",
    packages=MappingProxyType({"etcd": "go.etcd.io/etcd/server/v3"}),
    release=Release(
        base_url="https://github.com/etcd-io/etcd/releases/download",
        file_path="v{version}/etcd-v{version}-linux-{architecture}.tar.gz",
        checksum_path="v{version}/SHA256SUMS",
        archive_member="etcd-v{version}-linux-{architecture}/etcd",
    ),
    space=_space(module_cache=250, build_cache=350, scratch=150, output=30),
    usual_build_time="half a minute",
)
_KWOK = Module(
    name="kwok",
    version="0.8.0",
    packages=MappingProxyType({"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    release=_NEVER_RELEASED,  # with its changes
    space=_space(module_cache=500, build_cache=700, scratch=300, output=90),
    usual_build_time="1 to 2 min",
    changed="sigs.k8s.io/kwok",
)

METRICS_SERVER = "metrics-server"
_METRICS_SERVER = Module(
    name=METRICS_SERVER,
    version="0.9.0",
    packages=MappingProxyType({METRICS_SERVER: "sigs.k8s.io/metrics-server/cmd/metrics-server"}),
    release=Release(
        base_url="https://github.com/kubernetes-sigs/metrics-server/releases/download",
        file_path="v{version}/metrics-server-linux-{architecture}",
        checksum_path=None,
        archive_member=None,
    ),
    space=_space(module_cache=500, build_cache=700, scratch=300, output=70),
    usual_build_time="2 to 3 min",
    version_package="k8s.io/client-go/pkg/version",
)

# Another autoscaler, for runs that compare it with BigFleet. Its build with the kwok provider is
# not released; ours also prints its version and its CustomResourceDefinitions.
KARPENTER = "karpenter"
_KARPENTER = Module(
    name=KARPENTER,
    version="1.14.1",  # later ones need a newer compiler than the control plane does
    packages=MappingProxyType({KARPENTER: "."}),
    release=_NEVER_RELEASED,
    space=_space(module_cache=400, build_cache=700, scratch=300, output=70),
    usual_build_time="2 to 3 min",
    version_package="main",
)

# Renders, installs and tests the charts under charts/.
HELM = "helm"
_HELM = Module(
    name=HELM,
    version="4.3.1",
    packages=MappingProxyType({HELM: "helm.sh/helm/v4/cmd/helm"}),
    release=Release(
        base_url="https://get.helm.sh",
        file_path="helm-v{version}-linux-{architecture}.tar.gz",
        checksum_path="helm-v{version}-linux-{architecture}.tar.gz.sha256sum",
        archive_member="linux-{architecture}/helm",
    ),
    space=_space(module_cache=600, build_cache=900, scratch=300, output=70),
    usual_build_time="2 to 3 min",
    version_package="helm.sh/helm/v4/internal/version",
    version_variable="version",
    version_arguments=MappingProxyType({HELM: ("version", "--short")}),
)

_NODE = replace(
    _KUBERNETES,
    packages=MappingProxyType(
        {
            "kubeadm": "k8s.io/kubernetes/cmd/kubeadm",
            "kubectl": "k8s.io/kubernetes/cmd/kubectl",
            "kubelet": "k8s.io/kubernetes/cmd/kubelet",
            "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
        }
    ),
    version_arguments=MappingProxyType(
        {"kubeadm": ("version", "--output=short"), "kubectl": ("version", "--client")}
    ),
)
_COREDNS = Module(
    name="coredns",
    version="1.14.2",
    packages=MappingProxyType({"coredns": "github.com/coredns/coredns"}),
    release=Release(
        base_url="https://github.com/coredns/coredns/releases/download",
        file_path="v{version}/coredns_{version}_linux_{architecture}.tgz",
        checksum_path="v{version}/coredns_{version}_linux_{architecture}.tgz.sha256",
        archive_member="coredns",
    ),
    space=_space(module_cache=1000, build_cache=900, scratch=400, output=80),
    usual_build_time="1 to 3 min",
)
_PAUSE = Module(
    name="pause",
    version="3.10.2",
    packages=MappingProxyType({"pause": "."}),
    release=_NEVER_RELEASED,
    space=_space(module_cache=0, build_cache=50, scratch=20, output=2),
    usual_build_time="a few seconds",
    version_package="main",
)
KIND_MODULE = Module(
    name="kind",
    version="0.33.0",
    packages=MappingProxyType({"kind": "sigs.k8s.io/kind"}),
    release=Release(
        base_url="https://github.com/kubernetes-sigs/kind/releases/download",
        file_path="v{version}/kind-linux-{architecture}",
        checksum_path="v{version}/kind-linux-{architecture}.sha256sum",
        archive_member=None,
    ),
    space=_space(module_cache=50, build_cache=150, scratch=50, output=15),
    usual_build_time="half a minute",
)

# Nothing of it is built: tests read its CustomResourceDefinitions.
CLUSTER_API_MODULE = Module(
    name="cluster-api",
    version="1.14.2",
    packages=MappingProxyType({}),
    release=_NEVER_RELEASED,
    space=_space(module_cache=100, build_cache=0, scratch=0, output=0),
    usual_build_time="nothing",
)

PINNED_MODULES = (_KUBERNETES, _ETCD, _KWOK)
# Additional components of a kind node image.
NODE_MODULES = (_NODE, _COREDNS, _PAUSE)
# Provided on request only, keyed by component.
OPTIONAL_MODULES: Mapping[str, Module] = MappingProxyType(
    {METRICS_SERVER: _METRICS_SERVER, KARPENTER: _KARPENTER, HELM: _HELM}
)
ALL_MODULES = (*PINNED_MODULES, *OPTIONAL_MODULES.values(), *NODE_MODULES, KIND_MODULE)
COMPONENTS = tuple(name for module in PINNED_MODULES for name in module.components)
RELEASE_BASE_URLS: Mapping[str, str] = MappingProxyType(
    {module.name: module.release.base_url for module in ALL_MODULES}
)


def wanted_modules(kubernetes_version: str | None) -> tuple[Module, ...]:
    """The pinned modules, with Kubernetes in the requested version (None: the pinned one).

    Raises BinaryUsageError if it is not a version of three numbers.
    """
    if kubernetes_version is None:
        return PINNED_MODULES
    version = kubernetes_version.removeprefix("v")
    if not _VERSION.fullmatch(version) or not version.startswith("1."):
        raise BinaryUsageError(
            f"Kubernetes version {kubernetes_version!r} is not of the form 1.36.3 "
            "(KUBERNETES_VERSION or --kubernetes-version): give a full release number"
        )
    return (replace(_KUBERNETES, version=version), _ETCD, _KWOK)


def wanted_node_modules(kubernetes_version: str | None) -> tuple[Module, ...]:
    """NODE_MODULES with Kubernetes in the requested version. Raises as wanted_modules does."""
    [kubernetes, *_] = wanted_modules(kubernetes_version)
    return (replace(_NODE, version=kubernetes.version), _COREDNS, _PAUSE)


def is_pinned(module: Module) -> bool:
    """Whether the repository has a go.mod and go.sum for this module."""
    return module in ALL_MODULES


def release_name(module: Module, component: str, architecture: str) -> str:
    """The key of a released file in checksums.json."""
    return f"{component}-{module.version}-linux-{architecture}"


def filled(template: str, module: Module, component: str, architecture: str) -> str:
    """A Release template with its placeholders replaced."""
    return template.format(version=module.version, component=component, architecture=architecture)
