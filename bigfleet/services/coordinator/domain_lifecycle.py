"""State machine of a topology domain's ownership.

At no time may two shards act on one domain. A shard may act from the moment it is instructed to
take the domain, since its acceptance may be lost, until it has accepted an instruction to release
it. So a domain is free again only after that acceptance, or when its shard is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from bigfleet.model.errors import IllegalTransition


class DomainState(Enum):
    """State of a domain; a free one has no row in the store."""

    FREE = "free"
    ASSIGNING = "assigning"
    OWNED = "owned"
    RELEASING = "releasing"


class DomainEvent(Enum):
    """Events of a domain; the values are used in error messages."""

    GIVE = "assigning it to a shard"
    TAKEN = "its shard's acceptance"
    RELEASE = "an instruction to release it"
    RELEASED = "its release"
    REFUSED = "its shard's refusal to drain machines"
    OWNER_GONE = "its shard's removal"
    REPEAT = "instructing its shard again"


_S, _E = DomainState, DomainEvent

TRANSITIONS: Mapping[tuple[DomainState, DomainEvent], DomainState] = {
    (_S.FREE, _E.GIVE): _S.ASSIGNING,
    (_S.ASSIGNING, _E.TAKEN): _S.OWNED,
    # The shard may have accepted without the coordinator having received it.
    (_S.ASSIGNING, _E.RELEASE): _S.RELEASING,
    (_S.OWNED, _E.RELEASE): _S.RELEASING,
    (_S.RELEASING, _E.RELEASE): _S.RELEASING,
    (_S.RELEASING, _E.RELEASED): _S.FREE,
    # The shard has begun nothing then.
    (_S.RELEASING, _E.REFUSED): _S.OWNED,
    (_S.ASSIGNING, _E.OWNER_GONE): _S.FREE,
    (_S.OWNED, _E.OWNER_GONE): _S.FREE,
    (_S.RELEASING, _E.OWNER_GONE): _S.FREE,
    # After a restore it is unknown what the shards own.
    (_S.ASSIGNING, _E.REPEAT): _S.ASSIGNING,
    (_S.OWNED, _E.REPEAT): _S.ASSIGNING,
    (_S.RELEASING, _E.REPEAT): _S.RELEASING,
}


def next_state(name: tuple[str, str], state: DomainState, event: DomainEvent) -> DomainState:
    """The state after `event`; IllegalTransition names the domain, its state and the event."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        allowed = ", ".join(e.value for s, e in TRANSITIONS if s is state)
        raise IllegalTransition(
            f"domain {'='.join(name)}", state.value, event.value, f"possible: {allowed}"
        ) from None
