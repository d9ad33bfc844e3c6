"""The processes of a fleet on the wire, and its operators."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigfleet.api.auth.identity import Identity, Principal
from bigfleet.api.need_codec import need_to_wire
from controlplane.request import Binaries
from loaddriver.errors import InfrastructureError
from loaddriver.record.cpu import PROVIDER
from loaddriver.run.bigfleet_roles import LISTEN, coordinator_roles, shard_role
from loaddriver.run.cpu_reader import CpuReader
from loaddriver.substrates.base import Endpoint, RoleSpec
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runlock import RunLock
from loaddriver.substrates.runscope import RunScope
from loaddriver.wire.demand import needs_of_cluster
from loaddriver.wire.operators import Operator, Rhythm, Tally, change_counts
from loaddriver.wire.provider import NAME, machine_count
from loaddriver.wire.readings import FleetReadings
from loaddriver.wire.settings import WireProfile, WireSettings, save_profile

_PROFILE = "profile.json"
_PROVIDER_MODULE = "loaddriver.wire"
_EVEN_SHARE = 0.9
# For half a million machines to be made, and read by every shard.
_COLD_SECONDS = 600.0
_POLL_SECONDS = 0.25


@dataclass
class Fleet:
    """A running fleet. Times are of the monotonic clock."""

    profile: WireProfile
    substrate: LocalSubstrate
    specs: dict[str, RoleSpec]
    say: Callable[[str], None]
    tally: Tally = field(default_factory=Tally)
    machines: int = field(init=False)
    identities: list[Identity] = field(default_factory=list)
    shards: list[Endpoint] = field(default_factory=list)
    coordinators: list[Endpoint] = field(default_factory=list)
    soak: asyncio.Event = field(default_factory=asyncio.Event)
    #: when a role was killed, came back or joined
    happened: list[tuple[str, float]] = field(default_factory=list)
    even_at: float | None = None
    shards_began_at: float = 0.0

    def __post_init__(self) -> None:
        self.machines = machine_count(self.profile)
        self.readings = FleetReadings(())
        self.cpu = CpuReader(self.substrate.pids)

    @property
    def settings(self) -> WireSettings:
        """What is played."""
        return self.profile.settings

    def addresses(self) -> list[str]:
        """Where operators dial."""
        return [shard.addresses[LISTEN] for shard in self.shards]

    def join(self, shard: Endpoint) -> None:
        """Take in a shard."""
        self.shards.append(shard)
        self.readings.add(shard)

    def note(self, what: str) -> None:
        """Note that a role was killed, came back or joined."""
        self.happened.append((what, time.monotonic()))
        self.say(what)

    def note_evenness(self) -> None:
        """Note when the shards that join have their part of the domains."""
        joining = self.settings.bigfleet.shard_names[self.settings.bigfleet.shards :]
        owned = self.readings.domains()
        if self.even_at is None and joining and all(name in owned for name in joining):
            even = sum(owned.values()) / len(owned)
            if min(owned[name] for name in joining) >= _EVEN_SHARE * even:
                self.even_at = time.monotonic()

    def begin_losses(self) -> None:
        """Let machines fail from now on."""
        os.kill(self.substrate.pids()[PROVIDER], signal.SIGUSR1)


@asynccontextmanager
async def running_fleet(
    profile: WireProfile,
    environment: Mapping[str, str],
    binaries: Binaries,
    lock: RunLock,
    folder: Path,
    say: Callable[[str], None],
) -> AsyncIterator[Fleet]:
    """Provider, coordinators and shards, which end with the block."""
    scope = RunScope.within(lock, folder.name, folder / "logs")
    for sentence in scope.swept:
        say(sentence)
    try:
        substrate = LocalSubstrate(
            folder.name, scope.data_directory, folder / "logs", binaries, environment
        )
        try:
            settings = profile.distinct.settings
            save_profile(profile, folder / _PROFILE)
            roles = [
                _provider_role(folder / _PROFILE),
                *coordinator_roles(settings),
                *(shard_role(settings, number) for number in range(settings.bigfleet.most_shards)),
            ]
            yield Fleet(profile, substrate, {role.name: role for role in roles}, say)
        finally:
            await substrate.stop()
    finally:
        say(await scope.close())


def _provider_role(profile: Path) -> RoleSpec:
    return RoleSpec(
        PROVIDER,
        [
            *("-m", _PROVIDER_MODULE, "{profile}"),
            *("--listen", "{listen}", "--identity", "{identity}"),
        ],
        ports=(LISTEN,),
        inputs={"profile": profile.resolve()},
        peer_identity=Principal("provider", NAME),
        program=Path(sys.executable),
    )


async def start(fleet: Fleet) -> None:
    """Start everything; the shards last, and together."""
    substrate, specs, bigfleet = fleet.substrate, fleet.specs, fleet.settings.bigfleet
    provider = await substrate.start_role(specs[PROVIDER])
    names = [Principal("cluster", name) for name in _names(fleet)]
    fleet.identities += await asyncio.to_thread(substrate.identities, names)
    address = provider.addresses[LISTEN]
    await until(lambda: _answers(address), "the provider to make its machines")
    replicas = [specs[f"coordinator-{number}"] for number in range(bigfleet.coordinators)]
    fleet.coordinators += await asyncio.gather(*map(substrate.start_role, replicas))
    shards = bigfleet.shard_names[: bigfleet.shards]
    fleet.shards_began_at = time.monotonic()
    for shard in await asyncio.gather(*(substrate.start_role(specs[name]) for name in shards)):
        fleet.join(shard)


def _names(fleet: Fleet) -> list[str]:
    return [f"c{number + 1}" for number in range(fleet.settings.clusters)]


def operators_of(fleet: Fleet) -> Iterator[Coroutine[Any, Any, None]]:
    """One for each cluster, the first of which connects at once."""
    settings, distinct = fleet.settings, fleet.profile.distinct
    demand = [
        [need_to_wire(need) for need in needs_of_cluster(distinct, number)]
        for number in range(settings.distinct_clusters)
    ]
    rhythm = Rhythm(
        settings.bigfleet.rollup_seconds, change_counts(settings.changed_needs_share), fleet.soak
    )
    for number, (name, identity) in enumerate(zip(_names(fleet), fleet.identities, strict=True)):
        operator = Operator(
            name,
            demand[number % settings.distinct_clusters],
            fleet.addresses,
            identity,
            rhythm,
            fleet.tally,
        )
        yield operator.run(settings.connect_seconds * number / settings.clusters)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for `condition`. Raises InfrastructureError if it does not hold in ten minutes."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() > begin + _COLD_SECONDS:
            raise InfrastructureError(f"waited {_COLD_SECONDS:.0f} s for {what}; see the logs")
        await asyncio.sleep(_POLL_SECONDS)
