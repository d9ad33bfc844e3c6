"""NodeOverheads, what DaemonSets request on each machine, as wire messages; input is validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bigfleet.api.need_codec import (
    requirement_from_wire,
    requirements_to_wire,
    terms_from_wire,
    terms_to_wire,
    toleration_to_wire,
    tolerations_from_wire,
)
from bigfleet.api.v1alpha1 import capacity_pb2 as capacity
from bigfleet.model import penalty, resources
from bigfleet.model.errors import InvalidInput
from bigfleet.model.need import (
    NodeOverhead,
    Operator,
    Requirement,
    Term,
    Toleration,
    profile,
)

# One for each distinct set of machines that DaemonSets match.
MAX_OVERHEADS_OF_A_CLUSTER = 1_000


def overheads_from_wire(
    messages: Sequence[capacity.NodeOverhead], where: str
) -> tuple[tuple[NodeOverhead, ...], Mapping[int, str]]:
    """Valid overheads in canonical order, and errors, prefixed by `where`, of the others by index.
    InvalidInput when there are too many.
    """
    if len(messages) > MAX_OVERHEADS_OF_A_CLUSTER:
        hint = f"are more than {MAX_OVERHEADS_OF_A_CLUSTER}; sum those that match equal machines"
        raise InvalidInput(f"{where}: node_overheads", len(messages), hint)
    sound: list[NodeOverhead] = []
    faults: dict[int, str] = {}
    for number, message in enumerate(messages):
        try:
            sound.append(_overhead(message, f"{where}: node_overhead {number}"))
        except InvalidInput as error:
            faults[number] = str(error)
    return tuple(sorted(sound)), faults


def _overhead(message: capacity.NodeOverhead, where: str) -> NodeOverhead:
    requirements = [requirement_from_wire(r, where) for r in message.requirements]
    if any(requirement.operator is Operator.SAME for requirement in requirements):
        raise InvalidInput(f"{where}: requirements", "SAME", "is not supported for a DaemonSet")
    try:
        amounts = resources.parse_requests(message.resources)
    except InvalidInput as error:
        what = f"{where}: resources: {error.what}"
        raise InvalidInput(what, error.value, error.hint) from None
    return overhead_of(
        requirements,
        terms_from_wire(message.alternatives, f"{where}: alternatives"),
        tolerations_from_wire(message.tolerations, f"{where}: tolerations"),
        amounts,
    )


def overhead_of(
    requirements: Iterable[Requirement],
    alternatives: Iterable[Term],
    tolerations: Iterable[Toleration],
    amounts: Mapping[str, int],
) -> NodeOverhead:
    """A NodeOverhead in the canonical order of `model.need.profile`."""
    canonical = profile(
        requirements,
        (),
        0,
        penalty.ZERO,
        penalty.ZERO,
        alternatives=alternatives,
        tolerations=tolerations,
    )
    return NodeOverhead(
        canonical.requirements,
        canonical.alternatives,
        canonical.tolerations,
        tuple(sorted((name, amount) for name, amount in amounts.items() if amount)),
    )


def overheads_to_wire(overheads: Iterable[NodeOverhead]) -> list[capacity.NodeOverhead]:
    """The messages for `overheads`; `overheads_from_wire` is the inverse."""
    return [
        capacity.NodeOverhead(
            requirements=requirements_to_wire(overhead.requirements),
            alternatives=terms_to_wire(overhead.alternatives),
            tolerations=[toleration_to_wire(t) for t in overhead.tolerations],
            resources=resources.texts(dict(overhead.amounts)),
        )
        for overhead in overheads
    ]
