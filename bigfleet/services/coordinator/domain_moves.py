"""What all moves between shards have in common: cause, order, pace and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeVar

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.domains import Drain
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain, DomainName, QuotaName

_Key = TypeVar("_Key")

# A domain does not move again for so long; nor does a shard give of a quota after it got of it.
COOLDOWN_SECONDS = 300.0
# Two reports until its new shard has it, and some decisions and reports after that.
SETTLING_SECONDS = 15.0
# At most this share of all domains moves at the same time; at least one.
MOVING_SHARE = 0.05


class Cause(Enum):
    """Why a domain moves; the values are used in reasons and metrics."""

    #: its idle machines serve what another shard lacks
    IDLE = "idle"
    #: its speculative machines do
    SPECULATIVE = "speculative"
    #: those in use there, drained of lower priorities, do
    DRAIN = "drain"
    #: another shard has less than its even part of the instance type
    BALANCE = "balance"


class DomainMove(NamedTuple):
    """A domain to transfer to the shard `to`."""

    name: DomainName
    to: str
    cause: Cause
    reason: str
    drain: Drain | None = None

    @property
    def home(self) -> str:
        """Its new home; "" to keep the present one, from which it is on loan then."""
        return self.to if self.cause is Cause.BALANCE else ""


class ShortNeed(NamedTuple):
    """Identifies what is short: a profile of a cluster, of the shard that serves it."""

    shard: str
    cluster: str
    fingerprint: str


@dataclass
class MoveMemory:
    """What one leader ordered, by its monotonic clock. A new leader begins without it."""

    moved_at: dict[DomainName, float] = field(default_factory=dict)
    helped_at: dict[ShortNeed, float] = field(default_factory=dict)
    #: by donor: when, and how many machines it was told to drain
    drained_at: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    quota_given_at: dict[tuple[QuotaName, str], float] = field(default_factory=dict)
    #: when a need was looked at last, while there are too many to look at all
    considered_at: dict[ShortNeed, float] = field(default_factory=dict)

    def note(
        self,
        moves: Iterable[DomainMove],
        helped: Iterable[ShortNeed],
        now_seconds: float,
        considered: Iterable[ShortNeed] = (),
    ) -> None:
        """Record moves that are ordered now, the needs that they are for, and those that had their
        turn; forget what no longer matters.
        """
        self.considered_at = _within(self.considered_at, now_seconds - COOLDOWN_SECONDS)
        self.considered_at |= dict.fromkeys(considered, now_seconds)
        self.moved_at = _within(self.moved_at, now_seconds - COOLDOWN_SECONDS)
        self.helped_at = _within(self.helped_at, now_seconds - SETTLING_SECONDS)
        self.moved_at |= {move.name: now_seconds for move in moves}
        self.helped_at |= dict.fromkeys(helped, now_seconds)

    def note_drain(self, donor: str, machines: int, now_seconds: float) -> None:
        """Record that a shard is told to drain so many machines for others."""
        recent = self.drained_at.get(donor, ())
        since = now_seconds - COOLDOWN_SECONDS
        self.drained_at[donor] = [*(d for d in recent if d[0] > since), (now_seconds, machines)]

    def drained(self, donor: str, now_seconds: float) -> int:
        """How many machines a shard was told to drain for others within the cooldown."""
        recent = self.drained_at.get(donor, ())
        return sum(n for at, n in recent if now_seconds - at < COOLDOWN_SECONDS)

    def note_quotas(
        self,
        given: Iterable[tuple[QuotaName, str]],
        helped: Iterable[ShortNeed],
        now_seconds: float,
    ) -> None:
        """Record which shards are given more of which quotas now, and the needs that it is for."""
        self.quota_given_at = _within(self.quota_given_at, now_seconds - COOLDOWN_SECONDS)
        self.quota_given_at |= dict.fromkeys(given, now_seconds)
        self.helped_at |= dict.fromkeys(helped, now_seconds)

    def may_give(self, quota: QuotaName, shard: str, now_seconds: float) -> bool:
        """Whether a shard was not given more of the quota itself within the cooldown."""
        given_at = self.quota_given_at.get((quota, shard))
        return given_at is None or now_seconds - given_at >= COOLDOWN_SECONDS

    def may_move(self, row: Domain, now_seconds: float) -> bool:
        """Whether a domain is at rest, and has been for the cooldown."""
        moved_at = self.moved_at.get(row.name)
        return row.state is DomainState.OWNED and (
            moved_at is None or now_seconds - moved_at >= COOLDOWN_SECONDS
        )

    def was_helped(self, need: ShortNeed, now_seconds: float) -> bool:
        """Whether a need was helped so shortly before that the help may not have arrived yet."""
        helped_at = self.helped_at.get(need)
        return helped_at is not None and now_seconds - helped_at < SETTLING_SECONDS


def urgency(shard: str, short: wire.Shortfall) -> tuple[int, int, str, str, str]:
    """Sorts shortfalls: by priority, then by age; the rest so that every leader decides alike."""
    return -short.priority, -short.age_cycles, shard, short.cluster_id, short.profile_fingerprint


def moves_allowed(registry: Registry, live: Iterable[str]) -> int:
    """How many more domains may move now; not positive if enough are moving. What a shard that is
    not `live` has yet to take or release waits for its return, and keeps nobody else's from moving.
    """
    moving = sum(len(registry.unacknowledged(shard)) for shard in live)
    return max(1, int(MOVING_SHARE * len(registry.domains))) - moving


def _within(times: Mapping[_Key, float], since_seconds: float) -> dict[_Key, float]:
    return {key: at for key, at in times.items() if at > since_seconds}
