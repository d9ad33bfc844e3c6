"""Wires the parts of a shard that talk to the coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from bigfleet.model.domain import Domain
from bigfleet.ports.coordinator import Coordinator
from bigfleet.ports.ownership import OwnershipStore
from bigfleet.services.shard.coordination.drains_for_others import DrainsForOthers
from bigfleet.services.shard.coordination.instruction_handler import InstructionHandler
from bigfleet.services.shard.coordination.link import Link
from bigfleet.services.shard.coordination.reporter import Reporter
from bigfleet.services.shard.execute.actuation import Actuation
from bigfleet.services.shard.execute.execution import EXECUTE_SECONDS
from bigfleet.services.shard.fleet.ownership import Ownership
from bigfleet.services.shard.records.orders import Orders
from bigfleet.services.shard.sessions.registry import Sessions
from bigfleet.services.shard.sessions.router import SessionRouter


@dataclass(frozen=True)
class CoordinatorPorts:
    """The coordinator, and the store for what it assigns to the shard."""

    coordinator: Coordinator
    ownership_store: OwnershipStore


@dataclass(frozen=True)
class Coordination:
    """The parts of a shard that has a coordinator."""

    ownership: Ownership
    router: SessionRouter
    reporter: Reporter
    link: Link


def coordinate(
    coordinator_ports: CoordinatorPorts,
    reporter: Reporter,
    actuation: Actuation,
    sessions: Sessions,
    orders: Orders,
) -> Coordination:
    """Wire the parts; nothing is reported until the link runs."""
    inventory = reporter.inventory
    ownership, config = reporter.ownership, reporter.config

    def is_busy(domain: Domain) -> bool:
        """Whether an order in the domain is under way, or may still reach the provider, or a
        machine is reserved there; True before the first decision, while a provider has not been
        listed, and while orders of a former life may arrive, when not all of this is known.
        """
        lost_since = reporter.clock.monotonic_seconds() - EXECUTE_SECONDS
        ordered = {*(order.machine_id for order in orders), *orders.may_arrive(lost_since)}
        if drains.are_left(domain):
            return True
        there = any(inventory.domain(machine_id) == domain for machine_id in ordered)
        if reporter.cycle.latest is None or reporter.cycle.providers.unlisted:
            return True
        if reporter.former_orders_may_arrive:
            return True
        return there or inventory.has_reserved_machine_in(domain)

    def fence(why: str, incident: bool) -> None:
        """Stop ordering, and close all sessions so that operators find another shard."""
        actuation.stop_ordering(why, incident=incident)
        sessions.close_all()

    drains = DrainsForOthers(ownership, reporter.cycle)
    reporter.cycle.drains_for_others = drains.orders
    handler = InstructionHandler(ownership, is_busy, drains.objection)
    link = Link(
        coordinator_ports.coordinator,
        ownership,
        handler,
        reporter.compose,
        reporter.acknowledged,
        fence,
        config.report_seconds,
    )
    router = SessionRouter(
        config.shard_id, ownership, coordinator_ports.coordinator, lambda: actuation.fenced
    )
    return Coordination(ownership, router, reporter, link)
