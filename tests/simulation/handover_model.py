"""A small model of two shards, their coordinator and a provider, to try all interleavings.

The decisions are production's: rows, instructions and acknowledgements of the coordinator, what a
shard does with an instruction, and the provider's fencing. Around them the model has what can
happen: messages that are delayed, lost, repeated and overtaken, stale listings, crashes, domains
that move, and demand that ends. The provider keeps what it has accepted, so that a crash of it is
no more than the loss of all messages on their way to it and of its answers. One assumption is
production's, too: an order without an answer arrives, if ever, while its shard counts it as in
flight; and one of a life that has ended while the next life releases no domain.

Each shard serves a cluster of its own that needs one machine. A machine is speculative, free, or
bound to a cluster; operations take effect when the provider accepts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.domain import Domain
from bigfleet.model.errors import Fenced
from bigfleet.model.labels import RACK_LABEL
from bigfleet.ports.ownership import InstructionResult, InstructionVersion, OwnershipRecord
from bigfleet.ports.provider import Fence
from bigfleet.services.coordinator import acknowledgements, domains, instructions
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain as Row
from bigfleet.services.coordinator.rows import Shard as ShardRow
from bigfleet.services.coordinator.rows import put
from bigfleet.services.provider import fencing
from bigfleet.services.shard.coordination.instructions import Draft, release, take

SPECULATIVE, FREE = "speculative", "free"
CREATE, CONFIGURE, DRAIN = "create", "configure", "drain"
SHARDS = (0, 1)
Answers: TypeAlias = tuple[tuple[str, int, str], ...]


class Machine(NamedTuple):
    """`state` is SPECULATIVE, FREE or the name of a cluster; `bought_for` a cluster or ""."""

    state: str
    bought_for: str = ""


class Order(NamedTuple):
    """An order on its way to the provider."""

    shard: int
    epoch: int
    sequence: int
    machine: int
    action: str


class Report(NamedTuple):
    """A shard's report on its way, with its answers."""

    shard: int
    answers: Answers


class Reply(NamedTuple):
    """Instructions on their way: id, whether it assigns, domain, sequence number."""

    shard: int
    term: int
    instructions: tuple[tuple[str, bool, str, int], ...]


Message: TypeAlias = Order | Report | Reply


class Shard(NamedTuple):
    """`newest` to `answered` are on its disk. `view` is its last listing, `ordered` its orders
    under way, by machine; `epoch` 0 while it is down.
    """

    epoch: int
    last_epoch: int
    sequence: int
    newest: tuple[int, int]
    domains: frozenset[str]
    leaving: tuple[tuple[str, str], ...]
    answered: Answers
    due: Answers
    view: tuple[Machine, ...]
    ordered: tuple[tuple[int, str], ...]


class State(NamedTuple):
    """Everything. `budget` is what may still happen, by name."""

    rows: tuple[Row, ...]
    term: int
    sequence: int
    ids: int
    shards: tuple[Shard, ...]
    machines: tuple[Machine, ...]
    fences: tuple[tuple[int, int, int, int], ...]
    network: tuple[Message, ...]
    wants: tuple[bool, ...]
    bought: tuple[int, ...]
    budget: tuple[tuple[str, int], ...]


class Step(NamedTuple):
    """What may happen, and how to get the state after it. `is_fault`: it need not happen."""

    what: tuple[object, ...]
    after: Callable[[], State]
    is_fault: bool = False


def cluster(shard: int) -> str:
    """The cluster that a shard serves."""
    return f"c{shard}"


def initial(owners: Mapping[str, int], budget: Mapping[str, int]) -> State:
    """Domains at rest with their owners, and no machine in use."""
    rows = tuple(
        Row(RACK_LABEL, name, f"s-{owner}", DomainState.OWNED, f"0-{name}")
        for name, owner in sorted(owners.items())
    )
    shards = tuple(
        Shard(
            1, 1, 0, (0, 0), frozenset(d for d, o in owners.items() if o == n), (), (), (), (), ()
        )
        for n in SHARDS
    )
    machines = (Machine(SPECULATIVE), Machine(FREE), Machine(SPECULATIVE))
    limits = tuple(sorted(budget.items()))
    return State(rows, 1, 0, 0, shards, machines, (), (), (True, True), (0, 0), limits)


class Model:
    """The steps from each state; `domain_of` each of the three machines."""

    def __init__(self, domain_of: tuple[str, str, str]) -> None:
        self.domain_of = domain_of

    def steps(self, state: State) -> Iterator[Step]:
        """All that can happen next."""
        for shard in SHARDS:
            if state.shards[shard].epoch:
                yield from self._of_shard(state, shard)
            else:
                yield Step(("restarts", shard), partial(_restarted, state, shard))
        for message in dict.fromkeys(state.network):
            yield from _of_message(state, message)
        for name, left in state.budget:
            if left:
                yield from _of_budget(state, name, partial(_spent, state, name, left))

    def _of_shard(self, state: State, number: int) -> Iterator[Step]:
        shard = state.shards[number]
        if shard.view != state.machines:
            yield Step(("lists", number), partial(_listed, state, number))
        for machine, action in self._decided(state, number):
            what = "orders", number, action, machine
            yield Step(what, partial(_ordered, state, number, machine, action))
        for instruction, domain in shard.leaving:
            if shard.view and not self._is_busy(state, number, domain):
                yield Step(
                    ("releases", number, domain), partial(_released, state, number, instruction)
                )
        if not any(isinstance(m, Report | Reply) and m.shard == number for m in state.network):
            report = Report(number, shard.due)
            yield Step(("reports", number), partial(_sent, state, report))

    def _decided(self, state: State, number: int) -> Iterator[tuple[int, str]]:
        """As a shard decides for a need of one machine, by its last listing and its orders."""
        shard, own, wanted = state.shards[number], cluster(number), state.wants[number]
        under_way = dict(shard.ordered)
        if not shard.view:
            return
        seen = dict(enumerate(shard.view))
        if any(action != DRAIN for action in under_way.values()):
            return
        for machine, known in seen.items():
            if known.state == own and not wanted and machine not in under_way:
                yield machine, DRAIN
        if not wanted or any(known.state == own for known in seen.values()):
            return
        mine = [m for m, known in seen.items() if self._is_own(shard, own, m, known)]
        mine = [m for m in mine if m not in under_way]
        bought = [m for m in mine if seen[m].state == FREE and seen[m].bought_for == own]
        free = [m for m in mine if seen[m].state == FREE]
        for machine in (bought or free)[:1]:
            yield machine, CONFIGURE
        for machine in [] if free else mine[:1]:
            yield machine, CREATE

    def _is_own(self, shard: Shard, own: str, machine: int, known: Machine) -> bool:
        domain, leaving = self.domain_of[machine], {domain for _, domain in shard.leaving}
        if known.state not in (SPECULATIVE, FREE) or domain not in shard.domains:
            return False
        return domain not in leaving or (known.state == FREE and known.bought_for == own)

    def _is_busy(self, state: State, number: int, domain: str) -> bool:
        """Orders under way there, or of a former life anywhere, or a machine reserved for a need
        that has none yet.
        """
        shard, own = state.shards[number], cluster(number)
        if any(
            isinstance(m, Order) and _is_of_former_life(m, shard, number) for m in state.network
        ):
            return True
        is_short = state.wants[number] and all(known.state != own for known in shard.view)
        reserved = [m for m, known in enumerate(shard.view) if known == Machine(FREE, own)]
        there = (*(m for m, _ in shard.ordered), *(reserved if is_short else ()))
        return any(self.domain_of[m] == domain for m in there)


def _is_of_former_life(order: Order, shard: Shard, number: int) -> bool:
    return order.shard == number and order.epoch != shard.epoch


def _of_message(state: State, message: Message) -> Iterator[Step]:
    gone = partial(_received, state, message)
    if isinstance(message, Order):
        yield from _of_order(gone, message)
        return
    yield Step(("lost", message), gone, is_fault=True)
    if isinstance(message, Report):
        yield Step(("arrives", message), lambda: _reported(gone(), message))
    elif state.shards[message.shard].epoch:
        yield Step(("arrives", message), lambda: _replied(gone(), message))


def _of_order(gone: Callable[[], State], order: Order) -> Iterator[Step]:
    def executed() -> State:
        return _executed(gone(), order)

    yield Step(("lost", order), lambda: _given_up(gone(), order), is_fault=True)
    unanswered = "arrives, unanswered", order
    yield Step(unanswered, lambda: _given_up(executed(), order), is_fault=True)
    yield Step(("arrives", order), lambda: _answered(executed(), order))


def _executed(state: State, order: Order) -> State:
    """The provider accepts what is newer than its fence and legal."""
    fences = {(s, m): fencing.FencingToken(e, n) for s, m, e, n in state.fences}
    fence = Fence(f"s-{order.shard}", order.epoch, order.sequence)
    newest = fences.get((order.shard, order.machine))
    try:
        fences[order.shard, order.machine] = fencing.check(fence, str(order.machine), newest)
    except Fenced:
        return state
    state = state._replace(fences=tuple(sorted((*k, *token) for k, token in fences.items())))
    before, own = state.machines[order.machine], cluster(order.shard)
    after = {
        (CREATE, SPECULATIVE): Machine(FREE, own),
        (CONFIGURE, FREE): Machine(own),
        (DRAIN, own): Machine(FREE),
    }.get((order.action, before.state))
    if after is None:
        return state
    machines = list(state.machines)
    machines[order.machine] = after
    bought, epoch = list(state.bought), state.shards[order.shard].epoch
    # One that arrives once the next life has begun may be bought besides what that life buys.
    bought[order.shard] += order.action == CREATE and epoch in (0, order.epoch)
    return state._replace(machines=tuple(machines), bought=tuple(bought))


def _of_budget(state: State, name: str, spent: Callable[[], State]) -> Iterator[Step]:
    match name.split():
        case ["repeats"]:
            for each in dict.fromkeys(state.network):
                repeat = partial(lambda message: _sent(spent(), message), each)
                yield Step(("repeated", each), repeat, is_fault=True)
        case ["moves"]:
            yield from _moves(state, spent)
        case ["coordinator"]:

            def led_anew() -> State:
                return spent()._replace(term=state.term + 1, sequence=0)

            yield Step(("the coordinator crashes",), led_anew, is_fault=True)
        case ["ends", number]:
            ended = tuple(w and n != int(number) for n, w in enumerate(state.wants))
            yield Step(("demand ends", number), lambda: spent()._replace(wants=ended), True)
        case ["crash", number] if state.shards[int(number)].epoch:
            yield Step(("crashes", number), lambda: _crashed(spent(), int(number)), is_fault=True)


def _moves(state: State, spent: Callable[[], State]) -> Iterator[Step]:
    for row in state.rows:
        if row.state is DomainState.OWNED:
            to = f"s-{1 - int(row.shard[-1])}"
            move = partial(lambda row, to: _moved(spent(), row, to), row, to)
            yield Step(("moves", row.topology_value, to), move, is_fault=True)


def _crashed(state: State, number: int) -> State:
    shard = state.shards[number]
    return _with(state, number, shard._replace(epoch=0, sequence=0, due=(), view=(), ordered=()))


def _listed(state: State, number: int) -> State:
    return _with(state, number, state.shards[number]._replace(view=state.machines))


def _ordered(state: State, number: int, machine: int, action: str) -> State:
    shard = state.shards[number]
    sequence = shard.sequence + 1
    order = Order(number, shard.epoch, sequence, machine, action)
    ordered = tuple(sorted([*shard.ordered, (machine, action)]))
    after = _with(state, number, shard._replace(sequence=sequence, ordered=ordered))
    return _sent(after, order)


def _released(state: State, number: int, instruction: str) -> State:
    draft = Draft(_record(state.shards[number]))
    answer = release(draft, instruction)
    return _with(state, number, _after(state.shards[number], draft, [answer]))


def _registry(rows: Sequence[Row]) -> Registry:
    registry = Registry()
    registry.apply(put(*(ShardRow(f"s-{n}", "127.0.0.1:1", 1, 0) for n in SHARDS), *rows))
    return registry


class _Ids:
    """Ids of new instructions."""

    def __init__(self, used: int) -> None:
        self.used = used

    def __call__(self) -> str:
        self.used += 1
        return f"i-{self.used}"


def _rows(registry: Registry) -> tuple[Row, ...]:
    return tuple(row for _, row in sorted(registry.domains.items()))


@lru_cache(maxsize=100_000)
def _with_move(
    rows: tuple[Row, ...], used: int, name: tuple[str, str], to: str
) -> tuple[tuple[Row, ...], int]:
    registry, ids = _registry(rows), _Ids(used)
    registry.apply(domains.move(registry, name, to, ids))
    return _rows(registry), ids.used


def _moved(state: State, row: Row, to: str) -> State:
    rows, ids = _with_move(state.rows, state.ids, row.name, to)
    return state._replace(rows=rows, ids=ids)


@lru_cache(maxsize=100_000)
def _with_answers(
    rows: tuple[Row, ...], used: int, shard: int, answers: Answers
) -> tuple[tuple[Row, ...], int, tuple[tuple[str, bool, str], ...]]:
    """What the coordinator makes of answers: rows, the number of ids used, and what is pending."""
    registry, ids, name = _registry(rows), _Ids(used), f"s-{shard}"
    acks = [
        wire.InstructAck(
            instruction_id=number, outcome=wire.InstructAck.Outcome.ValueType(outcome), reason=why
        )
        for number, outcome, why in answers
    ]
    report = wire.ShardReport(shard_id=name, instruction_acks=acks)
    registry.apply(acknowledgements.apply_acks(registry, report, ids))
    told = []
    for each in instructions.pending(registry, name, (), ()):
        assigns = each.HasField("assign_domain")
        what = each.assign_domain if assigns else each.unassign_domain
        told.append((each.instruction_id, assigns, what.topology_value))
    return _rows(registry), ids.used, tuple(told)


def forget_decisions() -> None:
    """Compute all decisions anew, because one of production's functions is another now."""
    _with_move.cache_clear()
    _with_answers.cache_clear()


def _reported(state: State, report: Report) -> State:
    """The leader applies the answers and replies with what is pending."""
    rows, ids, pending = _with_answers(state.rows, state.ids, report.shard, report.answers)
    first = state.sequence + 1
    told = tuple((*each, number) for number, each in enumerate(pending, first))
    state = state._replace(rows=rows, ids=ids, sequence=state.sequence + len(told))
    known = state.shards[report.shard]
    if known.epoch and report.answers:  # what the reply confirms; a lost one, the next
        due = tuple(answer for answer in known.due if answer not in report.answers)
        state = _with(state, report.shard, known._replace(due=due))
    return _sent(state, Reply(report.shard, state.term, told)) if told else state


def _replied(state: State, reply: Reply) -> State:
    shard = state.shards[reply.shard]
    draft, answers = Draft(_record(shard)), []
    for number, assigns, value, sequence in reply.instructions:
        instruction = wire.CoordinatorInstruction(
            coordinator_term=reply.term, sequence_number=sequence, instruction_id=number
        )
        target = instruction.assign_domain if assigns else instruction.unassign_domain
        target.topology_key, target.topology_value = RACK_LABEL, value
        answers += take(draft, instruction)
    return _with(state, reply.shard, _after(shard, draft, answers))


def _record(shard: Shard) -> OwnershipRecord:
    return OwnershipRecord(
        newest=InstructionVersion(*shard.newest),
        domains=frozenset(Domain(RACK_LABEL, each) for each in shard.domains),
        leaving={number: Domain(RACK_LABEL, each) for number, each in shard.leaving},
        answered={number: InstructionResult(how, why) for number, how, why in shard.answered},
    )


def _after(shard: Shard, draft: Draft, answers: list[wire.InstructAck]) -> Shard:
    due = {(each.instruction_id, int(each.outcome), each.reason) for each in answers}
    return shard._replace(
        newest=(draft.newest.term, draft.newest.sequence),
        domains=frozenset(each.value for each in draft.domains),
        leaving=tuple(sorted((n, each.value) for n, each in draft.leaving.items())),
        answered=tuple(sorted((n, *each) for n, each in draft.answered.items())),
        due=tuple(sorted({*shard.due, *due})),
    )


def _with(state: State, number: int, shard: Shard) -> State:
    return state._replace(shards=tuple(shard if n == number else state.shards[n] for n in SHARDS))


def _sent(state: State, message: Message) -> State:
    return state._replace(network=(*state.network, message))


def _received(state: State, message: Message) -> State:
    left = list(state.network)
    left.remove(message)
    return state._replace(network=tuple(left))


def _spent(state: State, name: str, left: int) -> State:
    return state._replace(budget=tuple((n, left - 1 if n == name else b) for n, b in state.budget))


def _restarted(state: State, number: int) -> State:
    epoch = state.shards[number].last_epoch + 1
    return _with(state, number, state.shards[number]._replace(epoch=epoch, last_epoch=epoch))


def _is_under_way(state: State, order: Order) -> bool:
    shard = state.shards[order.shard]
    return shard.epoch == order.epoch and (order.machine, order.action) in shard.ordered


def _given_up(state: State, order: Order) -> State:
    """Without an answer the order counts as in flight for as long as it may arrive; the next
    decision begins with a listing.
    """
    if order in state.network or not _is_under_way(state, order):
        return state
    state = _closed(state, order)
    return _with(state, order.shard, state.shards[order.shard]._replace(view=()))


def _answered(state: State, order: Order) -> State:
    if not _is_under_way(state, order):
        return state
    state = _closed(state, order)
    shard = state.shards[order.shard]
    view = [*shard.view]
    if view:
        view[order.machine] = state.machines[order.machine]
    return _with(state, order.shard, shard._replace(view=tuple(view)))


def _closed(state: State, order: Order) -> State:
    shard = state.shards[order.shard]
    left = tuple(each for each in shard.ordered if each[0] != order.machine)
    return _with(state, order.shard, shard._replace(ordered=left))
