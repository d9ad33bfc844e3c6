"""The existing substrate: contexts of a kubeconfig, in which a run leaves nothing behind."""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import certifi
import msgspec
import yaml

from bigfleet.api.install import request_token
from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from controlplane.locate import LocatedBinary
from loaddriver.substrates.applying import path_of
from loaddriver.substrates.base import (
    Capabilities,
    Cluster,
    Endpoint,
    OnThisMachine,
    RoleSpec,
    SubstrateError,
    UnexpectedExit,
)
from loaddriver.substrates.components import (
    HEARTBEAT_STOPPED_LABEL,
    KWOK_STAGES,
    kwok_flags,
)
from loaddriver.substrates.credentials import LOAD_DRIVER
from loaddriver.substrates.existing import definitions, removal
from loaddriver.substrates.existing.contexts import Context
from loaddriver.substrates.existing.objects import ACCOUNT, FLEET, OWN_NAMESPACE, Guest, manifests
from loaddriver.substrates.existing.rights import missing_rights, needed_rules
from loaddriver.substrates.existing.starter import starter
from loaddriver.substrates.ports import LOOPBACK, free_port
from loaddriver.substrates.processes import Supervisor
from loaddriver.substrates.reaper.cleanup import removal_file, write_removal
from loaddriver.substrates.roles import arguments_of, own_values, until_serving

_KWOK = "kwok"
_MODULE = "loaddriver.substrates.existing.removal"
_TOKEN_SECONDS = 86_400
_IDENTITIES = (LOAD_DRIVER, "recorder", "kwok")
_GRACE_SECONDS = 1.0
_ROLE_START_SECONDS = 90.0


@dataclass(frozen=True)
class Prerequisites:
    """The clusters' contexts, in the order of the plan's clusters; `programs` of this machine are
    the kwok that plays the run's own Nodes, none if the clusters' Nodes are used, and the `guest`.
    """

    contexts: tuple[Context, ...]
    programs: Mapping[str, LocatedBinary]
    environment: Mapping[str, str]
    guest: Guest | None = None

    @property
    def versions(self) -> dict[str, str]:
        """The versions of these programs."""
        return {name: each.version for name, each in self.programs.items()}


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class ExistingSubstrate(OnThisMachine):
    """Other people's clusters, for one run. Create it inside a running event loop and always
    `stop` it; if the runner is killed, the reaper cleans the clusters.
    """

    name = "existing"
    capabilities = Capabilities(
        audit_log=False,
        own_scheduler=False,
        own_clock=True,
        roles_in_pods=True,
        own_clusters=False,
    )

    def __init__(
        self,
        run_id: str,
        data_directory: Path,
        log_directory: Path,
        prerequisites: Prerequisites,
    ) -> None:
        self._run_id = run_id
        self._data_directory = data_directory
        self._log_directory = log_directory
        self._prerequisites = prerequisites
        self._supervisor = Supervisor(run_id)
        self._versions: dict[str, str] = {}
        self._to_clean: list[Path] = []
        self._kubeconfigs: dict[str, Mapping[str, Path]] = {}
        self._programs: set[str] = set()

    async def start_clusters(self, names: Sequence[str]) -> list[Cluster]:
        """Check each cluster, then prepare it. Raises SubstrateError; then nothing was created if
        a right is missing, or another run or the guest's like is there.
        """
        pairs = list(zip(names, self._prerequisites.contexts, strict=True))
        admins = {name: self._write(name, "admin", context.kubeconfig) for name, context in pairs}
        for name, context in pairs:
            async with _connected(admins[name], context) as client:
                await self._check(client, context)
        self._announce(list(admins.values()))
        return [await self._prepare(name, context, admins[name]) for name, context in pairs]

    async def start_role(self, role: RoleSpec) -> Endpoint:
        """Start a program of this machine for one cluster. Raises SubstrateError, also for
        BigFleet's roles: they are not run in other people's clusters.
        """
        if role.program is None or role.cluster is None or role.identity is None:
            raise SubstrateError(f"{role.name}: an existing cluster takes no roles of BigFleet")
        addresses = {port: f"{LOOPBACK}:{free_port()}" for port in role.ports}
        command = [str(role.program), *arguments_of(role, own_values(role, addresses))]
        kubeconfig = self._kubeconfigs[role.cluster][role.identity]
        environment = {**self._prerequisites.environment, "KUBECONFIG": str(kubeconfig)}
        log_path = self._log_directory / f"{role.name}.log"
        process = self._supervisor.start(role.name, command, log_path, environment)
        self._programs.add(role.name)
        observe = addresses[role.observe_port] if role.observe_port else None
        await until_serving(process, observe, _ROLE_START_SECONDS)
        return Endpoint(role.name, observe, log_path, addresses)

    def pids(self) -> dict[str, int]:
        """The process ids of the kwoks and programs on this machine."""
        return self._supervisor.pids()

    def expect_exit(self, name: str) -> None:
        """Declare that a kwok or a program will exit."""
        self._supervisor.expect_exit(name)

    async def first_unexpected_exit(self) -> UnexpectedExit:
        """Wait for the first kwok or program to exit undeclared."""
        return await self._supervisor.first_unexpected_exit()

    async def stop(self) -> None:
        """Remove everything of this run from all clusters; idempotent. Raises SubstrateError."""
        to_clean, self._to_clean = self._to_clean, []
        # They would replace what is being removed.
        programs = [each for each in self._supervisor.running() if each.name in self._programs]
        await self._supervisor.stop(programs, _GRACE_SECONDS)
        try:
            await removal.remove_from(to_clean)
        except (ApiError, *CONNECTION_ERRORS) as error:
            raise SubstrateError(f"an existing cluster could not be cleaned: {error}") from error
        finally:
            await self._supervisor.stop(self._supervisor.running(), _GRACE_SECONDS)
        removal_file(self._data_directory).unlink(missing_ok=True)

    def versions(self) -> dict[str, str]:
        """The version of each cluster's API server, of kwok and of the guest."""
        return {**self._prerequisites.versions, **self._versions}

    async def _check(self, client: KubeClient, context: Context) -> None:
        version = msgspec.json.decode(await client.get("/version"), type=_Version)
        self._versions["kube-apiserver"] = version.git_version.removeprefix("v")
        fleet, guest = _KWOK in self._prerequisites.programs, self._prerequisites.guest
        missing = await missing_rights(client, needed_rules(fleet_nodes=fleet, guest=guest))
        if missing:
            lines = "".join(f"\n  {right}" for right in missing)
            raise SubstrateError(
                f"context {context.name}: its user lacks rights that the run needs; nothing was "
                f"created. Missing, in all namespaces:{lines}"
            )
        found = await removal.leftovers(client)
        if found:
            raise SubstrateError(
                f"context {context.name}: has objects of another run: {', '.join(found)}. If that "
                f"run is over: loaddriver down --context {context.name}"
            )
        present = await definitions.present(client, guest.definitions) if guest else []
        if guest and present:
            raise SubstrateError(
                f"context {context.name}: has CustomResourceDefinitions that {guest.name} would "
                f"bring along: {', '.join(present)}. They are those of an autoscaler of its own, "
                "which a run would disturb; nothing was created"
            )

    def _announce(self, kubeconfigs: Sequence[Path]) -> None:
        """Record the cleanup command before the first object is created."""
        command = [sys.executable, "-m", _MODULE, *map(str, kubeconfigs)]
        write_removal(self._data_directory, command, self._prerequisites.environment)
        self._to_clean = list(kubeconfigs)

    async def _prepare(self, name: str, context: Context, admin: Path) -> Cluster:
        started_by = starter(self._prerequisites.environment)
        guest = self._prerequisites.guest
        accounts = dict.fromkeys(_IDENTITIES, ACCOUNT)
        if guest:
            accounts[guest.name] = guest.account
        async with _connected(admin, context) as client:
            # Nothing of it exists, and to create needs fewer rights than to apply.
            for manifest in manifests(self._run_id, started_by, guest):
                await client.create(path_of(manifest).rpartition("/")[0], manifest)
            tokens = {
                account: await request_token(client, account, _TOKEN_SECONDS, OWN_NAMESPACE)
                for account in dict.fromkeys(accounts.values())
            }
        kubeconfigs = {
            role: self._write(name, role, self._with_token(name, context, tokens[account]))
            for role, account in accounts.items()
        }
        self._kubeconfigs[name] = kubeconfigs
        if kwok := self._prerequisites.programs.get(_KWOK):
            self._start_kwok(name, kubeconfigs[_KWOK], kwok.path)
        return Cluster(
            name,
            context.cluster["server"],
            {**kubeconfigs, "admin": admin},
            audit_log=None,
            own_namespaces=(OWN_NAMESPACE,),
            capacity_requests=False,
            probe_namespace=OWN_NAMESPACE,
        )

    def _start_kwok(self, name: str, kubeconfig: Path, kwok: Path) -> None:
        selector = f"{'!='.join(HEARTBEAT_STOPPED_LABEL)},{'='.join(FLEET)}"
        command = [
            str(kwok),
            *kwok_flags(kubeconfig, KWOK_STAGES),
            f"--manage-nodes-with-annotation-selector={'='.join(FLEET)}",
            f"--manage-nodes-with-label-selector={selector}",
        ]
        log = self._log_directory / name / "kwok.log"
        home = {"HOME": str(self._data_directory), "PATH": ""}
        self._supervisor.start(f"{name}/kwok", command, log, home)

    def _with_token(self, name: str, context: Context, token: str) -> str:
        content = yaml.safe_load(context.kubeconfig)
        [cluster] = content["clusters"]
        cluster["cluster"] = self._reachable(name, context)
        content["users"] = [{"name": context.name, "user": {"token": token}}]
        return yaml.safe_dump(content)

    def _reachable(self, name: str, context: Context) -> dict[str, Any]:
        """The API server and its CA as a file, which the load's process reads."""
        server = {"server": context.cluster["server"]}
        if context.cluster.get("insecure-skip-tls-verify"):
            return {**server, "insecure-skip-tls-verify": True}
        encoded = context.cluster.get("certificate-authority-data")
        if encoded:
            path = self._folder(name) / "ca.crt"
            path.write_bytes(base64.b64decode(encoded))
            return {**server, "certificate-authority": str(path)}
        given = context.cluster.get("certificate-authority", certifi.where())
        return {**server, "certificate-authority": given}

    def _write(self, cluster: str, role: str, content: str) -> Path:
        path = self._folder(cluster) / f"{role}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(content)
        return path

    def _folder(self, cluster: str) -> Path:
        folder = self._data_directory / cluster
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


@asynccontextmanager
async def _connected(kubeconfig: Path, context: Context) -> AsyncIterator[KubeClient]:
    """A client of the context's user. Raises SubstrateError if the cluster refuses a request."""
    try:
        async with await KubeClient.from_kubeconfig(kubeconfig) as client:
            yield client
    except (ApiError, *CONNECTION_ERRORS) as error:
        raise SubstrateError(f"context {context.name}: {error or 'no response'}") from error
