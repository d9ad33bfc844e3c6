"""Whether nodes find each other by name, as the second one must to join the first."""

from __future__ import annotations

from pathlib import Path

from kind.engine import Engine
from kind.errors import KindError

# Where podman looks for network plugins.
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
    """Raises KindError for a podman whose containers cannot ask for each other's addresses."""
    if engine.name != "podman":
        return
    backend = engine.run("info", "--format", "{{.Host.NetworkBackend}}").strip()
    if backend == "cni" and not any((folder / "dnsname").exists() for folder in PLUGIN_DIRECTORIES):
        raise KindError(
            "several nodes need podman's dnsname plugin, which is missing: install it (Debian: "
            "apt-get install golang-github-containernetworking-plugin-dnsname), or use one node"
        )
