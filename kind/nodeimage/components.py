"""Kubernetes' own images for a node without a registry, made from the pinned binaries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kind.command import run
from kind.engine import Engine
from kind.nodeimage.archive import Contents, write_archive

REGISTRY = "registry.k8s.io"

# Looked up in the node's own system: executables by name, then plugins, which iptables loads
# late; the libraries are those of both. A library missing from a plugin shows only in
# kube-proxy's log, once a Service has two endpoints.
_COLLECT_NETFILTER = """
set -eu
programs="/usr/sbin/xtables-nft-multi /usr/sbin/nft /usr/sbin/conntrack"
plugins=$(ls /usr/lib/*/xtables/*.so)
libraries=$(ldd $programs $plugins | grep -o '/[^ :]*\\.so[^ :]*' | sort -u)
mkdir -p /out/usr/sbin
for name in iptables ip6tables; do
  for ending in '' -save -restore; do
    ln -s xtables-nft-multi /out/usr/sbin/$name$ending
  done
done
tar -ch --hard-dereference -f - $programs $plugins $libraries 2>/dev/null | tar -C /out -xf -
tar -C /out --hard-dereference -cf - .
"""
_COLLECT_SECONDS = 120.0


def references(versions: Mapping[str, str]) -> dict[str, str]:
    """The images' names by component, from the components' versions."""
    named = {
        name: f"{REGISTRY}/{name}:v{versions[name]}"
        for name in (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-proxy",
        )
    }
    return {
        **named,
        "etcd": f"{REGISTRY}/etcd:{etcd_tag(versions['etcd'])}",
        "coredns": f"{REGISTRY}/coredns/coredns:v{versions['coredns']}",
        "pause": f"{REGISTRY}/pause:{versions['pause']}",
    }


def etcd_tag(version: str) -> str:
    """Kubernetes' images of etcd count their own builds of one release."""
    return f"{version}-0"


def write_components(
    directory: Path,
    binaries: Mapping[str, Path],
    versions: Mapping[str, str],
    base: str,
    engine: Engine,
    architecture: str,
) -> None:
    """Writes one archive per component into the directory."""
    for name, reference in references(versions).items():
        contents = _contents(name, binaries[name], base, engine)
        write_archive(directory / f"{name}.tar", reference, contents, architecture)


def _contents(name: str, binary: Path, base: str, engine: Engine) -> Contents:
    if name == "kube-proxy":
        return Contents({f"/usr/local/bin/{name}": binary}, _netfilter(base, engine))
    if name in ("coredns", "pause"):
        return Contents({f"/{name}": binary}, entrypoint=(f"/{name}",))
    return Contents({f"/usr/local/bin/{name}": binary})


def _netfilter(base: str, engine: Engine) -> bytes:
    """kube-proxy's tools, as a tar."""
    container = ["run", "--rm", "--network=none", base, "/bin/sh", "-c", _COLLECT_NETFILTER]
    return run([str(engine.path), *container], engine.environment, _COLLECT_SECONDS)
