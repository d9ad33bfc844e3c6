"""Runs `bigfleet audit` once the load has ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loaddriver.profile.settings import ProfileSettings
from loaddriver.record.fleet_audit import FleetAudit, read_audit
from loaddriver.run.bigfleet_roles import (
    LISTEN,
    coordinators_of,
    providers_of,
    served_clusters,
    shards_of,
)
from loaddriver.run.context import RunOptions
from loaddriver.substrates.base import Cluster, Endpoint
from loaddriver.substrates.reaper.cleanup import RUN_VARIABLE

# What the last roll-up changed is in hints five seconds later, and in the cluster soon after.
_SETTLING_SECONDS = 10.0
_TIMEOUT_SECONDS = 300.0
# Of `bigfleet audit`: nothing differs, or something does.
_FINISHED = (0, 1)
_STDERR = "fleet-audit.log"
AUDIT = "audit.json"


@dataclass(frozen=True)
class FleetAuditor:
    """Audits the fleet of run `run_id` with the `bigfleet` of the system under test, which knows
    what its shards save. The result is AUDIT in `folder`, errors are among the logs there.
    """

    options: RunOptions
    run_id: str
    folder: Path

    async def run(
        self,
        settings: ProfileSettings,
        roles: Mapping[str, Endpoint],
        clusters: Sequence[Cluster],
    ) -> FleetAudit | None:
        """The result; None in a run without shards."""
        if not shards_of(roles.values()):
            return None
        system = self.options.system
        bigfleet = system.command if system else (sys.executable, "-m", "bigfleet")
        command = [*bigfleet, *audit_arguments(settings, roles.values(), clusters)]
        environment = {**self.options.child_environment(), RUN_VARIABLE: self.run_id}
        log = self.folder / "logs" / _STDERR
        with (self.folder / AUDIT).open("wb") as out, log.open("wb") as err:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err,
                env=environment,
                start_new_session=True,  # Ctrl-C ends the run once it has been judged
            )  # fmt: skip
            try:
                code = await asyncio.wait_for(process.wait(), _TIMEOUT_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
                return FleetAudit(error=f"bigfleet audit took longer than {_TIMEOUT_SECONDS:g} s")
        if code not in _FINISHED:
            return FleetAudit(error=f"bigfleet audit ended with exit code {code}; its log: {log}")
        return read_audit((self.folder / AUDIT).read_bytes())


def audit_arguments(
    settings: ProfileSettings, roles: Iterable[Endpoint], clusters: Iterable[Cluster]
) -> Iterator[str]:
    """The arguments for a fleet: every role is reached as the harness sees it."""
    roles = list(roles)
    shards, coordinators = shards_of(roles), coordinators_of(roles)
    yield "audit"
    if coordinators:
        yield from ("--coordinator", ",".join(each.addresses[LISTEN] for each in coordinators))
        for shard in shards:
            yield from ("--shard-address", f"{shard.name}={shard.addresses[LISTEN]}")
    else:
        yield from ("--shard", shards[0].addresses[LISTEN])
    running = settings.fleet.running_provider
    providers = [each.addresses[LISTEN] for each in providers_of(roles)]
    for address in [running.address] if running else providers:
        yield from ("--provider", address)
    for cluster in served_clusters(settings, clusters):
        yield from ("--cluster", f"{cluster.name}={cluster.kubeconfigs['admin']}")
    identity = shards[0].readonly_identity
    yield from ("--identity", str(identity)) if identity else ("--insecure",)
    timing = settings.bigfleet
    pause_seconds = timing.rollup_seconds + timing.cycle_seconds + _SETTLING_SECONDS
    yield from ("--pause", f"{pause_seconds:g}", "--output", "json")
