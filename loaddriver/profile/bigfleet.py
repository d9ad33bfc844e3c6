"""The settings of BigFleet in a run."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from loaddriver.profile.archetypes import Count, DnsLabel, NotNegative, Positive, Share
from loaddriver.profile.decoding import ConfigStruct


class JoiningShards(ConfigStruct, frozen=True, kw_only=True):
    """Shards that are added to the running fleet, `atSeconds` into the soak."""

    number: Count
    at_seconds: NotNegative


class LeavingShard(ConfigStruct, frozen=True, kw_only=True):
    """A shard that is removed from the running fleet, `atSeconds` into the soak."""

    shard: DnsLabel
    at_seconds: NotNegative


class BigfleetSettings(ConfigStruct, frozen=True, kw_only=True):
    """The settings of the system under test that change what is measured.

    The acknowledgement of a CapacityRequest is a write per pod: without `acknowledgementsPerSecond`
    requests are acknowledged only where the load consists of them.
    Several `shards` split the machines and clusters, assigned by a coordinator with `coordinators`
    replicas. Without a coordinator, the one shard owns everything. The fleet has a part for each of
    the `joiningShards`, too.
    """

    cycle_seconds: Positive
    rollup_seconds: Positive
    reclaim_cap_fraction: Share
    reclaim_hold_seconds: NotNegative
    idle_hold_seconds: NotNegative
    unschedulable_delay_seconds: NotNegative = 15.0
    node_ready_timeout_seconds: NotNegative = 300.0
    acknowledgements_per_second: NotNegative | None = None
    shards: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    coordinators: Literal[0, 1, 3] = 0
    joining_shards: JoiningShards | None = None
    leaving_shard: LeavingShard | None = None

    @property
    def most_shards(self) -> int:
        """The number of shards once all have joined."""
        return self.shards + (self.joining_shards.number if self.joining_shards else 0)

    @property
    def shard_names(self) -> tuple[str, ...]:
        """The names of the shards, those that join later at the end."""
        return tuple(f"shard-{number}" for number in range(self.most_shards))
