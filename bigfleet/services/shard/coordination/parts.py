"""The parts of the coordinator's side of a shard, put together."""

from __future__ import annotations

from dataclasses import dataclass

from bigfleet.model.domain import Domain
from bigfleet.ports.coordinator import Coordinator
from bigfleet.ports.ownership import OwnershipStore
from bigfleet.services.shard.actuation import Actuation
from bigfleet.services.shard.coordination.estate import Estate
from bigfleet.services.shard.coordination.link import Link
from bigfleet.services.shard.coordination.reception import Reception
from bigfleet.services.shard.coordination.reporter import Reporter
from bigfleet.services.shard.coordination.steward import Steward
from bigfleet.services.shard.execution import EXECUTE_SECONDS
from bigfleet.services.shard.orders import Orders
from bigfleet.services.shard.sessions import Sessions


@dataclass(frozen=True)
class Ties:
    """Whom a shard reports to, and where it keeps what it is told to own."""

    coordinator: Coordinator
    holdings: OwnershipStore


@dataclass(frozen=True)
class Coordination:
    """Of a shard that has a coordinator."""

    estate: Estate
    reception: Reception
    reporter: Reporter
    link: Link


def coordinate(
    ties: Ties, reporter: Reporter, actuation: Actuation, sessions: Sessions, orders: Orders
) -> Coordination:
    """Nothing is reported until the link runs."""
    inventory = reporter.inventory
    estate, settings = reporter.estate, reporter.settings

    def is_busy(domain: Domain) -> bool:
        """Also while a machine there is still being created, or nobody knows whether one is, or
        whether an order that was not answered is still on its way to the provider.
        """
        lost_since = reporter.clock.monotonic_seconds() - EXECUTE_SECONDS
        ordered = {*(order.machine_id for order in orders), *orders.may_arrive(lost_since)}
        there = any(inventory.domain(machine_id) == domain for machine_id in ordered)
        return there or reporter.cycle.latest is None or inventory.promises_in(domain)

    def bar(why: str) -> None:
        """Operators that stayed with it would be served by nobody."""
        actuation.stop_ordering(why)
        sessions.close_all()

    steward = Steward(estate, is_busy)
    link = Link(
        ties.coordinator,
        estate,
        steward,
        reporter.compose,
        reporter.heard,
        bar,
        settings.report_seconds,
    )
    reception = Reception(settings.shard_id, estate, ties.coordinator, lambda: actuation.fenced)
    return Coordination(estate, reception, reporter, link)
