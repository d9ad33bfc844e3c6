"""The shared network of all kind clusters on an engine."""

from __future__ import annotations

import fcntl
from pathlib import Path

from kind.engine import Engine
from kind.errors import KindError

# podman's directories of network plugins.
PLUGIN_DIRECTORIES = tuple(
    Path(folder)
    for folder in (
        "/usr/local/libexec/cni",
        "/usr/libexec/cni",
        "/usr/local/lib/cni",
        "/usr/lib/cni",
        "/opt/cni/bin",
    )
)


def require_name_service(engine: Engine) -> None:
    """Raise KindError if podman's containers cannot resolve each other's names."""
    if engine.name != "podman":
        return
    backend = engine.run("info", "--format", "{{.Host.NetworkBackend}}").strip()
    if backend == "cni" and not any((folder / "dnsname").exists() for folder in PLUGIN_DIRECTORIES):
        raise KindError(
            "several nodes need podman's dnsname plugin, which is missing: install it (Debian: "
            "apt-get install golang-github-containernetworking-plugin-dnsname), or use one node"
        )


# kind gives its engine network this name.
NETWORK = "kind"


def ensure_network(engine: Engine, lock: Path) -> None:
    """Makes it where podman has none: two clusters that start at once would both try, and kind
    takes the refusal of the second as a failure. With Docker kind sorts that out by itself.

    Whoever has the lock file locked looks first. Raises KindError.
    """
    if engine.name != "podman":
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            engine.run("network", "inspect", NETWORK)
        except KindError:
            engine.run("network", "create", "--driver=bridge", NETWORK)
