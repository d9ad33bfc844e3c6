"""A role as a workload of its cluster: its files and arguments."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from loaddriver.substrates.base import RoleSpec
from loaddriver.substrates.kind.cluster_objects import LOGS_CLAIM, STATE_CLAIM
from loaddriver.substrates.kind.layout import Layout, object_name
from loaddriver.substrates.kind.manifests import FileMount, Port, Workload
from loaddriver.substrates.placeholders import API_SERVER, IDENTITY, STATE, mentions, substituted

_EVERYWHERE = "0.0.0.0"
_STATE, _INPUTS = PurePosixPath("/state"), PurePosixPath("/inputs")
_OUTPUTS, _ACCESS = PurePosixPath("/outputs"), PurePosixPath("/access")
# Of the environment that local roles get, what is not about this machine.
_CARRIED = ("PYTHONUNBUFFERED", "OMP_NUM_THREADS")
# The root file system is read-only: here a shard keeps the kernels that it compiles.
_OWN = {"NUMBA_CACHE_DIR": "/tmp/kernels"}


@dataclass(frozen=True)
class RoleEnvironment:
    """What a role needs to know of the place it is put into.

    `peers` are the addresses of other roles by placeholder, as seen from there.
    """

    image: str
    api_server: str
    ports: Sequence[Port]
    peers: Mapping[str, str]
    environment: Mapping[str, str]


def role_workload(role: RoleSpec, place: RoleEnvironment) -> Workload:
    """The workload that runs the role. Raises SubstrateError for an unknown placeholder."""
    values = {
        **place.peers,
        **{port.name: f"{_EVERYWHERE}:{port.container}" for port in place.ports},
        **{name: str(_INPUTS / name) for name in role.inputs},
        **{name: str(_OUTPUTS / file) for name, file in role.outputs.items()},
        **{name: str(_ACCESS / name) for name in role.kubeconfigs},
        IDENTITY: str(_ACCESS / IDENTITY),
        STATE: str(_STATE),
        API_SERVER: place.api_server,
    }
    return Workload(
        name=object_name(role),
        component=role.name,
        image=place.image,
        arguments=substituted(role, values),
        environment={k: v for k, v in place.environment.items() if k in _CARRIED} | _OWN,
        ports=place.ports,
        probed=role.observe_port,
        api_account=role.identity,
        mounts=tuple(_mounts(role)),
        keeps_state=mentions(role, STATE),
    )


def access_secret(role: RoleSpec, name: str) -> str:
    """What the Secret with the kubeconfigs of that name, or with its identity, is called."""
    return f"{object_name(role)}-{name}"


def prepare_files(role: RoleSpec, layout: Layout) -> None:
    """Make the folders and files of this machine that the role's mounts lead to.

    Roles run as a user that this machine may not know. What they write must be open to all; who
    else might is kept out by the run's data folder, which only its owner can enter.
    """
    home = layout.volumes / object_name(role)
    if mentions(role, STATE):
        (home / STATE).mkdir(parents=True, exist_ok=True)
        (home / STATE).chmod(0o777)
    for name, path in role.inputs.items():
        _copy(path, home / _INPUTS.name / name)
    for file in role.outputs.values():
        (layout.logs / file).touch()
        (layout.logs / file).chmod(0o666)


def _mounts(role: RoleSpec) -> Iterator[FileMount]:
    home = object_name(role)
    if mentions(role, STATE):
        yield FileMount(str(_STATE), STATE_CLAIM, f"{home}/{STATE}", read_only=False)
    for name in role.inputs:
        yield FileMount(str(_INPUTS / name), STATE_CLAIM, f"{home}/{_INPUTS.name}/{name}")
    for file in role.outputs.values():
        yield FileMount(str(_OUTPUTS / file), LOGS_CLAIM, file, read_only=False)
    for name in role.kubeconfigs:
        yield FileMount(str(_ACCESS / name), secret=access_secret(role, name))
    if role.peer_identity:
        yield FileMount(str(_ACCESS / IDENTITY), secret=access_secret(role, IDENTITY))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, target)
        target.chmod(0o644)
