"""The settings of the load: what is created, and by how many processes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from loaddriver.profile.decoding import ConfigStruct


class Load(ConfigStruct, frozen=True, kw_only=True):
    """What the load driver creates: workload objects whose controllers create pods, or, in `cr`
    mode, one CapacityRequest per planned pod. In `cr` mode there are no pods, so nothing binds.

    One process plays the plan, or a Locust master and several `workers`, of which each plays the
    events of its part of the objects.
    """

    mode: Literal["pods", "cr"] = "pods"
    workers: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
