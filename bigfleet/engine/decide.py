"""One cycle's decision, made anew from the whole snapshot each time."""

from __future__ import annotations

from bigfleet.engine.assign import assign
from bigfleet.engine.decision import Action, ActionKind, Decision
from bigfleet.engine.rails import cap_reclaims
from bigfleet.engine.reclaim import excess, releases
from bigfleet.engine.snapshot import NONE, Demand, Fleet, Settings


def decide(fleet: Fleet, demand: Demand, settings: Settings, now_seconds: float) -> Decision:
    """What to do so that `fleet` serves `demand`, with what it cannot serve.

    Pure: equal arguments give an equal decision, and a fleet that serves its demand with nothing
    to spare gives no actions. `now_seconds` is on the clock of `fleet.unused_since_seconds`.
    """
    assignment = assign(fleet, demand)
    surplus = excess(fleet, demand, assignment.claimed_by, settings, now_seconds)
    reclaimed = cap_reclaims(fleet, surplus, settings.reclaim_cap_fraction)
    released = releases(fleet, assignment.claimed_by, settings, now_seconds)
    grace = settings.voluntary_grace_seconds
    return Decision(
        actions=[
            *assignment.actions,
            *(Action(ActionKind.RECLAIM, int(row), NONE, grace) for row in reclaimed),
            *(Action(ActionKind.DELETE, int(row), NONE) for row in released),
        ],
        shortfalls=assignment.shortfalls,
        claimed_by=assignment.claimed_by,
        reclaims_capped=len(surplus) - len(reclaimed),
    )
