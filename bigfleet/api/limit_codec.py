"""NodeLimits, the machines whose Nodes take no new pods, as wire messages; input is validated.

An invalid limit is ignored; the rest of the roll-up counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bigfleet.api.v1alpha1 import capacity_pb2 as capacity
from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput

# The most machines that one cluster can have.
MAX_LIMITS_OF_A_CLUSTER = 100_000
_MAX_ID_LENGTH, _MAX_MESSAGE_LENGTH = 253, 500


class LimitReason(Enum):
    """Why a Node takes no new pods; OTHER stands for a reason unknown to this version."""

    CORDONED = "Cordoned"
    TAINTED = "Tainted"
    NOT_READY = "NotReady"
    MISSING = "Missing"
    OTHER = "Other"


@dataclass(frozen=True, slots=True)
class NodeLimit:
    """A machine that serves only what already runs on it: `amounts`, in units of `model.resources`,
    sorted by name. `broken` when the machine is to be released.
    """

    machine_id: str
    reason: LimitReason
    message: str
    amounts: tuple[tuple[str, int], ...]
    broken: bool = False


def limits_from_wire(
    messages: Sequence[capacity.NodeLimit], where: str
) -> tuple[Mapping[str, NodeLimit], Sequence[InvalidInput]]:
    """Valid limits by machine, and an error, prefixed by `where`, for each ignored one."""
    limits: dict[str, NodeLimit] = {}
    problems = []
    for number, message in enumerate(messages[:MAX_LIMITS_OF_A_CLUSTER]):
        name = f"{where}: node_limit {number}"
        try:
            limit = _limit(message, name)
            if limit.machine_id in limits:
                raise InvalidInput(name, limit.machine_id, "is limited twice")
        except InvalidInput as error:
            problems.append(error)
        else:
            limits[limit.machine_id] = limit
    if len(messages) > MAX_LIMITS_OF_A_CLUSTER:
        hint = f"are more than {MAX_LIMITS_OF_A_CLUSTER}; the others are ignored"
        problems.append(InvalidInput(f"{where}: node_limits", len(messages), hint))
    return limits, problems


def _limit(message: capacity.NodeLimit, where: str) -> NodeLimit:
    machine_id = message.machine_id
    if not 0 < len(machine_id) <= _MAX_ID_LENGTH or not machine_id.isprintable():
        hint = f"is not a name of 1 to {_MAX_ID_LENGTH} printable characters"
        raise InvalidInput(f"{where}: machine_id", machine_id[:80], hint)
    try:
        amounts = resources.parse_requests(message.resources)
    except InvalidInput as error:
        what = f"{where}: resources: {error.what}"
        raise InvalidInput(what, error.value, error.hint) from None
    known = {reason.value for reason in LimitReason}
    return NodeLimit(
        machine_id,
        LimitReason(message.reason if message.reason in known else LimitReason.OTHER.value),
        message.message[:_MAX_MESSAGE_LENGTH],
        tuple(sorted((name, amount) for name, amount in amounts.items() if amount)),
        message.broken,
    )


def limits_to_wire(limits: Sequence[NodeLimit]) -> Iterator[capacity.NodeLimit]:
    """The messages for `limits`; `limits_from_wire` is the inverse."""
    for limit in limits:
        yield capacity.NodeLimit(
            machine_id=limit.machine_id,
            reason=limit.reason.value,
            message=limit.message,
            resources=resources.texts(dict(limit.amounts)),
            broken=limit.broken,
        )
