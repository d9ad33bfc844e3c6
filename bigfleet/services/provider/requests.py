"""Validates requests and converts them to orders and selections. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import MachineEvent, MachineState
from bigfleet.ports.provider import Fence
from bigfleet.services.provider.lifecycle import Order, Record

Mutation = wire.CreateRequest | wire.ConfigureRequest | wire.DrainRequest | wire.DeleteRequest

# So that no claim exhausts the numbers.
MAX_EPOCH = 2**62


def fence_of(request: Mutation) -> Fence:
    """The fence of a mutation; InvalidInput without a shard_id."""
    if not request.shard_id:
        what = f"machine {request.machine_id}: shard_id"
        raise InvalidInput(what, "", "is empty; every order names the shard that gives it")
    return Fence(request.shard_id, request.shard_epoch, request.sequence_number)


def epoch_claim_of(request: wire.ClaimEpochRequest) -> tuple[str, int]:
    """The claiming shard and its least acceptable epoch; InvalidInput for invalid fields."""
    if not request.shard_id:
        raise InvalidInput("shard_id", "", "is empty; an epoch belongs to one shard")
    if not 0 <= request.at_least <= MAX_EPOCH:
        raise InvalidInput("at_least", request.at_least, f"is not in 0 to {MAX_EPOCH}")
    return request.shard_id, max(1, request.at_least)


def order_of(request: Mutation) -> Order:
    """The order in a mutation; InvalidInput for invalid fields."""
    match request:
        case wire.ConfigureRequest():
            return _configuration(request)
        case wire.DrainRequest():
            return _drain(request)
        case wire.CreateRequest():
            return Order(MachineEvent.CREATE, shard_metadata=dict(request.shard_metadata))
        case _:
            return Order(MachineEvent.DELETE)


def _configuration(request: wire.ConfigureRequest) -> Order:
    if not request.cluster_id:
        what = f"machine {request.machine_id}: cluster_id"
        raise InvalidInput(what, "", "is empty; a machine is configured for one cluster")
    return Order(
        MachineEvent.CONFIGURE,
        cluster=request.cluster_id,
        bootstrap_blob=request.bootstrap_blob,
        shard_metadata=dict(request.shard_metadata),
    )


def _drain(request: wire.DrainRequest) -> Order:
    if request.grace_period_seconds < 0:
        what = f"machine {request.machine_id}: grace_period_seconds"
        raise InvalidInput(what, request.grace_period_seconds, "is negative; 0 means at once")
    return Order(MachineEvent.DRAIN, grace_seconds=request.grace_period_seconds)


class Records(Protocol):
    """The records of all machines: see `record_index`."""

    @property
    def id(self) -> str:
        """Distinguishes their revisions from those of other records."""
        ...

    @property
    def revision(self) -> int:
        """That of the last change."""
        ...

    def get(self, machine_id: str) -> Record:
        """The machine's record; UnknownObject when there is none."""
        ...

    def changed_after(self, revision: int) -> Iterator[Record]:
        """The records whose last change is later than `revision`, in order of change."""
        ...


@dataclass(frozen=True)
class Selection:
    """Records in order of their last change, the revision to list changes since, and the token of
    the next page, b"" on the last one.
    """

    records: Sequence[Record]
    revision: bytes
    next_page_token: bytes = b""


def select(store: Records, request: wire.ListFilter) -> Selection:
    """The records that a List selects.

    A revision that is malformed, of another store or in the future selects all records. Pages are
    in order of change, and a page token is the revision of the page's last record: what changes
    while pages are read moves to a later page. InvalidInput for a token of another store.
    """
    states = {_state(value) for value in request.states}
    if request.max_results < 0:
        raise InvalidInput("max_results", request.max_results, "is negative; 0 means no limit")
    found = store.changed_after(_first_revision(store, request))
    if states:
        found = (record for record in found if record.machine.state in states)
    if request.max_results == 0:
        return Selection(list(found), _token(store, store.revision))
    records = list(islice(found, request.max_results))
    if next(found, None) is None:
        return Selection(records, _token(store, store.revision))
    last = _token(store, records[-1].revision)
    return Selection(records, last, next_page_token=last)


def _first_revision(store: Records, request: wire.ListFilter) -> int:
    if not request.page_token:
        return _known_revision(store, request.since_revision) or 0
    revision = _known_revision(store, request.page_token)
    if revision is None:
        hint = "is not known; begin again without one"
        raise InvalidInput("page_token", request.page_token, hint)
    return revision


def _state(value: int) -> MachineState:
    try:
        return MachineState(value)
    except ValueError:
        raise InvalidInput("states", value, "is not a known machine state") from None


def _token(store: Records, revision: int) -> bytes:
    return f"{store.id}:{revision}".encode()


def _known_revision(store: Records, token: bytes) -> int | None:
    store_id, _, number = token.partition(b":")
    if store_id != store.id.encode() or not number.isdigit() or len(number) > 18:
        return None
    revision = int(number)
    return revision if revision <= store.revision else None
