"""Orders under way: decided, but not yet reflected by the provider.

Until the provider's answer, decisions see the machine in the state that the order leads to, so that
no cycle decides the same twice. A listing requested before that answer may still show the machine
in its former state; such a record is stale and is not applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bigfleet.engine.decision import EVENT_OF, ActionType
from bigfleet.model.machine import TRANSITIONS, MachineState
from bigfleet.model.need import Need, NeedKey

STARTS_FROM = {
    action_type: tuple(before for before, each in TRANSITIONS if each is event)
    for action_type, event in EVENT_OF.items()
}
LEADS_TO = {
    action_type: TRANSITIONS[STARTS_FROM[action_type][0], event]
    for action_type, event in EVENT_OF.items()
}

_BY_OPERATOR = (ActionType.BOOTSTRAP, ActionType.PREEMPT, ActionType.RECLAIM)


@dataclass(slots=True, eq=False)
class Order:
    """One decided action. `cluster` is where the machine goes, or comes from; "" for DELETE.

    `need` is the need that a machine is acquired for. `need_key` identifies that need, or the one
    for which the machine is taken from `cluster`. `sent` once the provider may have received it.
    `decided_seconds` is Unix time. A reclaim with `max_cost` is refused by the operator if its
    disruption costs more, one with the text of a `gang`'s group if no pod of it runs there; an
    `unattended` one skips the operator, since its cluster is gone.
    `why` is the coordinator's reason for an order of its own.
    """

    action_type: ActionType
    machine_id: str
    cluster: str
    need: Need | None
    grace_seconds: int
    decided_seconds: float
    sent: bool = False
    need_key: NeedKey | None = None
    preemptor_priority: int = 0
    max_cost: float | None = None
    gang: str = ""
    unattended: bool = False
    why: str = ""

    def __post_init__(self) -> None:
        if self.need_key is None and self.need is not None:
            self.need_key = NeedKey(self.cluster, *self.need.key)

    @property
    def leads_to(self) -> MachineState:
        """The machine's state while the order is under way."""
        return LEADS_TO[self.action_type]

    @property
    def asks_operator(self) -> bool:
        """Whether the operator of its cluster takes part in it."""
        return self.action_type in _BY_OPERATOR and not self.unattended

    @property
    def starts_from(self) -> tuple[MachineState, ...]:
        """The states in which the order is legal."""
        return STARTS_FROM[self.action_type]


class Orders:
    """At most one order per machine; detects listings that may be older than an answer."""

    def __init__(self) -> None:
        self._under_way: dict[str, Order] = {}
        self._answered: dict[str, tuple[tuple[MachineState, ...], int]] = {}
        self._unanswered: dict[str, float] = {}
        self._listings = 0
        self._being_read: set[int] = set()

    def __iter__(self) -> Iterator[Order]:
        return iter(self._under_way.values())

    def __len__(self) -> int:
        return len(self._under_way)

    def of(self, machine_id: str) -> Order | None:
        """The order under way for a machine."""
        return self._under_way.get(machine_id)

    def add(self, order: Order) -> None:
        """Put `order` under way; the machine must have none."""
        assert order.machine_id not in self._under_way, order
        self._under_way[order.machine_id] = order

    def is_current(self, order: Order) -> bool:
        """False once another transition of the machine has superseded the order."""
        return self._under_way.get(order.machine_id) is order

    def overtake(self, machine_id: str) -> None:
        """Drop the machine's order if it is not sent yet, because the machine changed state."""
        order = self._under_way.get(machine_id)
        if order is not None and not order.sent:
            del self._under_way[machine_id]

    def close(self, order: Order, lost_seconds: float | None = None) -> None:
        """End the order, whatever its outcome; `lost_seconds` is when its answer was given up."""
        if self.is_current(order):
            del self._under_way[order.machine_id]
        if order.sent:
            self._answered[order.machine_id] = (order.starts_from, self._listings)
            # The provider rejects all orders older than an answered one.
            self._unanswered.pop(order.machine_id, None)
            if lost_seconds is not None:
                self._unanswered[order.machine_id] = lost_seconds

    def may_arrive(self, since_seconds: float) -> Collection[str]:
        """Machines with a sent order whose answer was given up since then."""
        late = self._unanswered.items()
        self._unanswered = {name: at for name, at in late if at >= since_seconds}
        return self._unanswered.keys()

    def listing_asked(self) -> int:
        """The number of a listing that is requested now."""
        self._listings += 1
        self._being_read.add(self._listings)
        return self._listings

    def is_stale(self, machine_id: str, state: MachineState, listing: int) -> bool:
        """Whether a record may show the machine as it was before an order reached the provider."""
        order = self._under_way.get(machine_id)
        if order is not None and order.sent and state in order.starts_from:
            return True
        before, asked = self._answered.get(machine_id, ((), 0))
        return state in before and listing <= asked

    def concern(self, machine_id: str) -> bool:
        """Whether a record of the machine may be stale."""
        return machine_id in self._under_way or machine_id in self._answered

    def listing_ended(self, listing: int) -> None:
        """The listing is applied, or given up: an answer needs protection only as long as listings
        that were requested before it are being read.
        """
        self._being_read.discard(listing)
        oldest = min(self._being_read, default=self._listings + 1)
        self._answered = {i: (s, n) for i, (s, n) in self._answered.items() if n >= oldest}
