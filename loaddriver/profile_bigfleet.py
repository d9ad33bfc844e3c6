"""A profile's settings of the system under test."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from loaddriver.profile.archetypes import Share
from loaddriver.profile.decoding import ConfigStruct

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class BigfleetSettings(ConfigStruct, frozen=True, kw_only=True):
    """The settings of the system under test that change what is measured.

    Several `shards` share the machines and clusters, kept apart by a coordinator of so many
    `coordinators`. Without any, the one shard owns everything.
    """

    cycle_seconds: Positive
    rollup_seconds: Positive
    reclaim_cap_fraction: Share
    reclaim_hold_seconds: Seconds
    idle_hold_seconds: Seconds
    unschedulable_delay_seconds: Seconds = 15.0
    node_ready_timeout_seconds: Seconds = 300.0
    shards: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    coordinators: Literal[0, 1, 3] = 0
