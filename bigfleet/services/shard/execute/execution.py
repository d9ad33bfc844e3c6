"""Executes one order: the steps of each action type."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bigfleet.api import need_codec
from bigfleet.api.journal import JournalEvent
from bigfleet.engine.decision import ActionType
from bigfleet.model.errors import (
    BigFleetError,
    Fenced,
    IllegalTransition,
    InvalidInput,
    Unavailable,
    UnknownObject,
)
from bigfleet.model.need import Operator, Profile, Requirement
from bigfleet.observe import metrics
from bigfleet.ports.provider import CapacityProvider, Fence, Operation
from bigfleet.services.shard.execute.evictions import Evictions
from bigfleet.services.shard.execute.providers import Providers
from bigfleet.services.shard.fleet.assignment import bought_for, ordered_by, to_metadata
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.journal import Journal
from bigfleet.services.shard.records.orders import Order, Orders
from bigfleet.services.shard.sessions.disruption_costs import DisruptionCosts
from bigfleet.services.shard.sessions.registry import Sessions
from bigfleet.services.shard.sessions.session import BootstrapRefused, ReclaimRefused, Session


def as_met(profile: Profile, labels: Mapping[str, str]) -> Sequence[Requirement]:
    """The labels that kube-scheduler considers for such pods, with the machine's actual values.
    Labels that the machine does not have are omitted.
    """
    return [
        Requirement(key, Operator.IN, (labels[key],))
        for key in sorted(set(_keys(profile)))
        if key in labels
    ]


def _keys(profile: Profile) -> Iterator[str]:
    for term in (profile.requirements, *profile.alternatives):
        yield from (requirement.key for requirement in term)
    yield from (spread.topology_key for spread in profile.spread)
    yield from profile.anti_affinity


EXECUTE_SECONDS = 30.0
DRAIN_RETRY_SECONDS = 1.0

_Send = Callable[[CapacityProvider, Fence], Awaitable[Operation]]


class OrderOutcome(Enum):
    """How an order ended; the values are metric labels."""

    DONE = "done"
    OVERTAKEN = "overtaken"
    NO_SESSION = "no-session"
    OPERATOR_SILENT = "operator-silent"
    REFUSED_BY_OPERATOR = "refused-by-operator"
    UNAVAILABLE = "unavailable"
    TIMED_OUT = "timed-out"
    ILLEGAL = "illegal-transition"
    UNKNOWN_MACHINE = "unknown-machine"
    INVALID = "invalid"
    FENCED = "fenced"
    FAILED = "failed"


_OF_ERROR: dict[type[BaseException], OrderOutcome] = {
    BootstrapRefused: OrderOutcome.REFUSED_BY_OPERATOR,
    ReclaimRefused: OrderOutcome.REFUSED_BY_OPERATOR,
    Unavailable: OrderOutcome.UNAVAILABLE,
    TimeoutError: OrderOutcome.TIMED_OUT,
    IllegalTransition: OrderOutcome.ILLEGAL,
    UnknownObject: OrderOutcome.UNKNOWN_MACHINE,
    InvalidInput: OrderOutcome.INVALID,
    Fenced: OrderOutcome.FENCED,
}


def outcome_of(error: BigFleetError | TimeoutError) -> OrderOutcome:
    """The outcome of an order that raised `error`."""
    return _OF_ERROR.get(type(error), OrderOutcome.FAILED)


@dataclass(eq=False)
class Execution:
    """Executes one order per call of `carry_out`."""

    providers: Providers
    sessions: Sessions
    inventory: Inventory
    orders: Orders
    evictions: Evictions
    disruptions: DisruptionCosts
    journal: Journal

    async def carry_out(self, order: Order) -> OrderOutcome:
        """Execute up to the provider's answer; raises errors of the operator and the provider."""
        if self._is_overtaken(order):
            return OrderOutcome.OVERTAKEN
        steps = {
            ActionType.BOOTSTRAP: self._bootstrap,
            ActionType.PROVISION: self._provision,
            ActionType.PREEMPT: self._reclaim,
            ActionType.RECLAIM: self._reclaim,
            ActionType.DELETE: self._delete,
        }
        return await steps[order.action_type](order)

    async def _bootstrap(self, order: Order) -> OrderOutcome:
        session = self.sessions.of(order.cluster)
        if session is None:
            return OrderOutcome.NO_SESSION
        blob = await self._blob(session, order)
        if self._is_overtaken(order):
            return OrderOutcome.OVERTAKEN
        need = order.need
        assert need is not None

        def send(provider: CapacityProvider, fence: Fence) -> Awaitable[Operation]:
            metadata = to_metadata(need) | ordered_by(fence)
            return provider.configure(order.machine_id, order.cluster, blob, metadata, fence)

        return await self._send(order, JournalEvent.CONFIGURE_SENT, send)

    async def _blob(self, session: Session, order: Order) -> bytes:
        assert order.need is not None
        known = self.inventory.view(order.machine_id)
        labels = known.machine_class.labels_of(known.id) if known else {}
        requirements = need_codec.requirements_to_wire(as_met(order.need.profile, labels))
        self._note(order, JournalEvent.BOOTSTRAP_REQUESTED)
        with metrics.shard_bootstrap_seconds.time():
            blob = await session.request_bootstrap(order.machine_id, requirements)
        self._note(order, JournalEvent.BOOTSTRAP_RECEIVED)
        return blob

    async def _provision(self, order: Order) -> OrderOutcome:
        self.inventory.attribute(order)
        metadata = bought_for(order.cluster, order.need)

        def send(provider: CapacityProvider, fence: Fence) -> Awaitable[Operation]:
            return provider.create(order.machine_id, metadata, fence)

        return await self._send(order, JournalEvent.CREATE_SENT, send)

    async def _delete(self, order: Order) -> OrderOutcome:
        return await self._send(
            order,
            JournalEvent.DELETE_SENT,
            lambda provider, fence: provider.delete(order.machine_id, fence),
        )

    async def _reclaim(self, order: Order) -> OrderOutcome:
        def drain(provider: CapacityProvider, fence: Fence) -> Awaitable[Operation]:
            return provider.drain(order.machine_id, order.grace_seconds, fence)

        if order.unattended:
            return await self._send(order, JournalEvent.DRAIN_SENT, drain)
        session = self.sessions.of(order.cluster)
        if session is None:
            return OrderOutcome.NO_SESSION
        known = self.inventory.view(order.machine_id)
        self.evictions.begin(order, known.incarnation if known else 0)
        await self._instruct_reclaim(order, session)
        # The Node is being drained now: a machine left CONFIGURED would count as supply.
        while True:
            if self._is_overtaken(order):
                return OrderOutcome.OVERTAKEN
            try:
                return await self._send(order, JournalEvent.DRAIN_SENT, drain)
            except (Unavailable, TimeoutError) as error:
                self._note(order, JournalEvent.DRAIN_UNANSWERED, str(error))
            await asyncio.sleep(DRAIN_RETRY_SECONDS)

    async def _instruct_reclaim(self, order: Order, session: Session) -> None:
        """Have the operator begin to drain the machine's Node; ReclaimRefused if it does not."""
        self._note(order, JournalEvent.RECLAIM_SENT)
        try:
            started = await session.instruct_reclaim(
                order.machine_id,
                order.grace_seconds,
                order.preemptor_priority,
                order.max_cost,
                order.gang,
            )
        except ReclaimRefused:
            self.evictions.cancel(order.machine_id)
            if order.gang:
                self.inventory.unclaim(order.machine_id)
            else:
                self.disruptions.refused(order.machine_id, order.cluster, order.decided_seconds)
            raise
        self.disruptions.accepted(order.machine_id)
        self._note(order, JournalEvent.RECLAIM_ACKNOWLEDGED, f"nodes started: {started}")

    async def _send(self, order: Order, event: JournalEvent, send: _Send) -> OrderOutcome:
        link = self.providers.of(order.machine_id)
        async with link.slots:
            if self._is_overtaken(order):
                return OrderOutcome.OVERTAKEN
            order.sent = True
            self._note(order, event)
            async with asyncio.timeout(EXECUTE_SECONDS):
                operation = await send(link.client, link.fences.next())
        if operation.machine.id != order.machine_id:
            what = f"machine {order.machine_id}: the provider's answer"
            raise InvalidInput(what, operation.machine.id[:80], "names another machine")
        link.reconciler.answered(order, operation.machine)
        return OrderOutcome.DONE

    def _is_overtaken(self, order: Order) -> bool:
        """Whether the machine has changed state, cluster or order since the decision."""
        known = self.inventory.view(order.machine_id)
        if known is None or known.state not in order.starts_from:
            return True
        left = (
            known.cluster not in ("", order.cluster) and order.action_type is not ActionType.DELETE
        )
        return left or not self.orders.is_current(order)

    def _note(self, order: Order, event: JournalEvent, note: str = "") -> None:
        self.journal.note_order(event, order, note=note)
