"""What was decided, as records that two revisions or two states can be compared by. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from bigfleet.engine.decide import decide
from bigfleet.engine.decision import Action, ActionType
from bigfleet.engine.snapshot import NONE, EngineConfig
from bigfleet.model import resources
from bigfleet.model.ceiling import micros
from bigfleet.model.errors import UNDECODABLE, InvalidInput
from bigfleet.model.group import PodGroup
from bigfleet.model.labels import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, NeedKey
from bigfleet.services.shard.decide.compute import CycleResult, compute
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.records.wants import KeysOf

FORMAT = 1
MAX_COPIES = 4096
_MICROS = 1_000_000


class Order(msgspec.Struct, frozen=True, order=True):
    """One action: `need` is the need that it is for, as CLUSTER/PROFILE[/GROUP], "" for none.
    Dollars an hour are spent in addition; negative ones are saved.
    """

    action: str
    machine: str
    instance_type: str
    zone: str
    cluster: str
    need: str
    dollars_per_hour: float

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What is done, with which machine and for whom."""
        return self.action, self.machine, self.cluster, self.need


class ShortNeed(msgspec.Struct, frozen=True, order=True):
    """A need with pods for which there is no machine, and their requests."""

    need: str
    priority: int
    pods: int
    lacks: dict[str, str] = {}


class Decisions(msgspec.Struct, frozen=True):
    """The result of one cycle; `dollars_per_hour` is what all machines cost after it."""

    format: int
    orders: list[Order]
    short: list[ShortNeed]
    dollars_per_hour: float


class Difference(msgspec.Struct, frozen=True):
    """What a decision has that another lacks, and the reverse."""

    added: list[Order]
    removed: list[Order]
    #: by need, unplaced pods before and now, where they differ
    short_pods: dict[str, tuple[int, int]]
    dollars_per_hour: float


def decisions_on(inputs: CycleInputs, settings: EngineConfig) -> Decisions:
    """The production decision on `inputs`."""
    return _recorded(compute(inputs, decide, settings))


def difference(before: Decisions, now: Decisions) -> Difference:
    """What changes from one decision to the other. Orders are compared without their price."""
    old, new = ({order.identity for order in each.orders} for each in (before, now))
    pods_before, pods_now = ({s.need: s.pods for s in each.short} for each in (before, now))
    needs = sorted(pods_before.keys() | pods_now.keys())
    both = {need: (pods_before.get(need, 0), pods_now.get(need, 0)) for need in needs}
    return Difference(
        added=[order for order in now.orders if order.identity not in old],
        removed=[order for order in before.orders if order.identity not in new],
        short_pods={need: pods for need, pods in both.items() if pods[0] != pods[1]},
        dollars_per_hour=round(now.dollars_per_hour - before.dollars_per_hour, 6),
    )


def read(content: bytes, name: str) -> Decisions:
    """The decisions in a file; InvalidInput, which calls it `name`, if it has none."""
    try:
        found = msgspec.json.decode(content, type=Decisions)
    except UNDECODABLE as error:
        raise InvalidInput(name, str(error), "does not have decisions of a replay") from None
    if found.format != FORMAT:
        raise InvalidInput(name, found.format, f"is not this release's format, {FORMAT}")
    return found


def written(decisions: Decisions) -> bytes:
    """The decisions as the content of a file; `read` is the inverse."""
    return msgspec.json.format(msgspec.json.encode(decisions)) + b"\n"


def copies_that_fit(inputs: CycleInputs, settings: EngineConfig, name: str, now: Decisions) -> int:
    """How many more needs like `name` are placed completely, as the last ones of their priority,
    while no need has more unplaced pods than in `now`, the decision on the inputs; at most
    MAX_COPIES. InvalidInput for an unknown need.
    """
    index = _index_of(inputs, name)
    short_now = {each.need: each.pods for each in now.short}

    def fit(copies: int) -> bool:
        decided = decisions_on(_with_copies(inputs, index, copies), settings)
        return all(each.pods <= short_now.get(each.need, 0) for each in decided.short)

    if not fit(1):
        return 0
    fitting, failing = 1, 2
    while failing <= MAX_COPIES and fit(failing):
        fitting, failing = failing, 2 * failing
    failing = min(failing, MAX_COPIES + 1)
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        fitting, failing = (middle, failing) if fit(middle) else (fitting, middle)
    return fitting


def _index_of(inputs: CycleInputs, name: str) -> int:
    """The one need whose name begins with `name`."""
    keys = KeysOf(inputs.asked, inputs.fleet.clusters)
    found = [number for number, key in enumerate(keys) if _is_named(key, name)]
    if len(found) != 1:
        hint = f"names {len(found)} needs; write CLUSTER/PROFILE[/GROUP]"
        raise InvalidInput("--fit", name, hint)
    return found[0]


def _is_named(key: NeedKey, name: str) -> bool:
    cluster, _, rest = name.partition("/")
    profile, slash, group = rest.partition("/")
    is_meant = not slash or key.group == group
    return key.cluster == cluster and key.fingerprint.startswith(profile) and is_meant


def _with_copies(inputs: CycleInputs, index: int, copies: int) -> CycleInputs:
    """With copies of a need, each a group of its own, after all needs of its priority."""
    asked = inputs.asked
    need, cluster = asked.needs[index], int(asked.cluster[index])
    group = need.key[1] or "need"
    more = [replace(need, group=PodGroup(f"copy {n} of {group}")) for n in range(copies)]
    needs: list[Need] = list(asked.needs)
    place = sum(each.priority >= need.priority for each in needs)
    clusters = np.insert(asked.cluster, place, np.full(copies, cluster, np.int32))
    needs[place:place] = more
    numbers = asked.number
    if numbers is not None:
        numbers = np.insert(numbers, place, np.full(copies, NONE, np.int32))
    return replace(inputs, asked=replace(asked, needs=needs, cluster=clusters, number=numbers))


def _recorded(result: CycleResult) -> Decisions:
    orders = [_order(result, action) for action in result.decision.actions]
    short = [
        ShortNeed(
            need=_name(result.keys[each.need]),
            priority=result.demand.needs[each.need].priority,
            pods=each.pods,
            lacks=resources.texts({n: a for n, a in sorted(each.deficit.items()) if a}),
        )
        for each in result.decision.shortfalls
    ]
    held = _held_micros(result) + sum(micros(order.dollars_per_hour) for order in orders)
    return Decisions(FORMAT, orders, short, held / _MICROS)


def _order(result: CycleResult, action: Action) -> Order:
    fleet = result.fleet
    flavour = fleet.flavours[fleet.flavour[action.row]]
    cluster = int(fleet.cluster[action.row])
    key = None if action.need == NONE else result.keys[action.need]
    sign = {ActionType.PROVISION: 1, ActionType.DELETE: -1}.get(action.type, 0)
    if action.type in (ActionType.BOOTSTRAP, ActionType.PROVISION) and key is not None:
        where = key.cluster
    else:
        where = "" if cluster == NONE else fleet.clusters[cluster]
    return Order(
        action=action.type.value,
        machine=result.machine_id(action.row),
        instance_type=flavour.labels.get(INSTANCE_TYPE_LABEL, ""),
        zone=flavour.labels.get(ZONE_LABEL, ""),
        cluster=where,
        need=_name(key) if key else "",
        dollars_per_hour=sign * flavour.price_per_hour,
    )


def _held_micros(result: CycleResult) -> int:
    fleet = result.fleet
    prices = np.array([micros(f.price_per_hour) for f in fleet.flavours], np.int64)
    paid = (fleet.state != MachineState.SPECULATIVE) & (fleet.state != MachineState.DELETING)
    return int(prices[fleet.flavour[paid]].sum())


def _name(key: NeedKey) -> str:
    return "/".join(part for part in key if part)


def by_type(orders: Sequence[Order]) -> Mapping[tuple[str, str], int]:
    """Orders counted by action and instance type."""
    return Counter((order.action, order.instance_type) for order in orders)
