"""Where the chart put every part of a run: the file `places.yaml`, which it renders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bigfleet.kube.client import KubeClient
from loaddriver.substrates.base import SubstrateError

RELEASE_VARIABLE = "LOADDRIVER_RELEASE"
"""Names the folder in which a pod of the chart has all about its release."""
REINSTALL = "install it with the values that `loaddriver chart-values PROFILE` prints"


class ClusterPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A nested cluster: its pod, the host name of its Service, and URLs.

    `files` serves its audit log. `secret` has what its control plane needs, `access` kubeconfigs.
    The federation, if it is its own, reaches it at the port `proxy` of the runner's pod.
    """

    name: str
    pod: str
    host: str
    api_server: str
    files: str
    secret: str
    access: str
    proxy: int = 0


class RolePlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A role of the system under test: its container, and `<host>:<port>` of its ports. Without a
    `pod` it runs beside the runner.

    Its metrics are at `observe`, unless it has another port for `metrics`. `restarts_allowed` says
    that it keeps its state outside its pod, so a run survives its restart. `files` is the URL that
    serves what it writes for the harness, if it does.
    """

    container: str
    observe: str
    pod: str = ""
    listen: str = ""
    metrics: str = ""
    files: str = ""
    restarts_allowed: bool = False


class IdentityPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A Secret with a certificate: of `principal`, a URI, and valid for `hosts` too."""

    secret: str
    principal: str
    hosts: tuple[str, ...] = ()


class Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """All parts of a release in `namespace`.

    Secrets that are made for it are deleted with `owner`, a ConfigMap. `images` are by component.
    `federation` is the API server of a federated HPA, without controllers. `load_workers` are the
    pods of a load that does not come from the runner's own.
    """

    namespace: str
    owner: str
    clusters: tuple[ClusterPlace, ...]
    roles: dict[str, RolePlace]
    identities: tuple[IdentityPlace, ...]
    authority_secret: str
    token_secret: str
    images: dict[str, str]
    federation: ClusterPlace | None = None
    load_workers: tuple[str, ...] = ()

    @property
    def api_servers(self) -> tuple[ClusterPlace, ...]:
        """All clusters, and the federation's."""
        return (*self.clusters, *([self.federation] if self.federation else []))


@dataclass(frozen=True)
class Mounts:
    """What a pod of the chart has in the folder `root`, as far as it needs it."""

    root: Path

    @property
    def places(self) -> Path:
        return self.root / "places" / "places.yaml"

    @property
    def readonly(self) -> Path:
        """The identity that may read from shards."""
        return self.root / "readonly"

    def kubeconfig(self, cluster: str, identity: str) -> Path:
        """How an identity of the harness reaches a nested cluster."""
        return self.root / "access" / cluster / f"{identity}.kubeconfig"

    def token(self) -> str:
        """The token of the file servers."""
        return (self.root / "token" / "token").read_text().strip()


@dataclass(frozen=True)
class Prerequisites:
    """The parts that the chart started, and the client of the cluster that they run in."""

    places: Places
    mounts: Mounts
    environment: Mapping[str, str]

    @property
    def versions(self) -> Mapping[str, str]:
        """The version of each component, by the tag of its image."""
        tags = {name: image.rpartition(":")[2] for name, image in self.places.images.items()}
        return {name: tag.removeprefix("v").partition("-")[0] for name, tag in tags.items()}


def obtain(environment: Mapping[str, str]) -> Prerequisites:
    """Read what the chart wrote. Raises SubstrateError where there is no chart."""
    root = environment.get(RELEASE_VARIABLE)
    if not root:
        raise SubstrateError(
            "--substrate pods runs in pods of charts/scaletest only: install the chart instead "
            f"(it sets {RELEASE_VARIABLE})"
        )
    mounts = Mounts(Path(root))
    try:
        places = msgspec.yaml.decode(mounts.places.read_bytes(), type=Places)
    except (OSError, msgspec.MsgspecError) as error:
        raise SubstrateError(f"{mounts.places}: {error}") from error
    return Prerequisites(places, mounts, environment)


def check_load_workers(places: Places, wanted: int) -> None:
    """Raise SubstrateError unless the release has the pods of so many workers; one needs none."""
    there = len(places.load_workers) or 1
    if there != wanted:
        raise SubstrateError(
            f"the profile wants {wanted} workers of the load (load.workers), the release has "
            f"{there}: {REINSTALL}"
        )


async def host_client(environment: Mapping[str, str]) -> KubeClient:
    """A client of the cluster that the pods run in: by KUBECONFIG, else as the own pod."""
    if kubeconfig := environment.get("KUBECONFIG"):
        return await KubeClient.from_kubeconfig(Path(kubeconfig))
    return KubeClient.in_cluster()
