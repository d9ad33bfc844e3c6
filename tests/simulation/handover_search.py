"""`python -m tests.simulation.handover_search [--schedules N]`: checks the hand-over of domains.

Without arguments it tries all interleavings of a number of small cases, breadth first. With
`--schedules` it plays random ones of a case with more moves, repeated messages and crashes.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context

import msgspec

from bigfleet.model.errors import Fenced
from bigfleet.ports.provider import Fence
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.provider import fencing
from tests.simulation.handover_model import (
    CONFIGURE,
    CREATE,
    FREE,
    SHARDS,
    SPECULATIVE,
    Answers,
    Message,
    Model,
    Order,
    Reply,
    Report,
    Shard,
    State,
    Step,
    initial,
)

_LEGAL_FROM = {CREATE: SPECULATIVE, CONFIGURE: FREE}
# Faults happen during so many steps of a random schedule; then it must come to rest.
_UNSETTLED_STEPS = 50
_LONGEST_SCHEDULE = 2000
_NOTHING = {
    "moves": 0,
    "repeats": 0,
    "coordinator": 0,
    "crash 0": 0,
    "crash 1": 0,
    "ends 0": 0,
    "ends 1": 0,
}


@dataclass(frozen=True)
class Case:
    """Which machines are in which domain, who owns them at first, and what may happen how often."""

    name: str
    domain_of: tuple[str, str, str]
    owners: Mapping[str, int]
    budget: Mapping[str, int] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The steps of this case."""
        return Model(self.domain_of)

    @property
    def start(self) -> State:
        """Its first state."""
        return canonical(initial(self.owners, {**_NOTHING, **self.budget}))


ONE = Case("one domain", ("x", "x", "x"), {"x": 0})
TWO = Case("two domains", ("x", "x", "y"), {"x": 0, "y": 1})
_CRASHES = {"crash 0": 1, "crash 1": 1, "coordinator": 1}
CASES = [
    replace(ONE, name="one domain, one crash each", budget={"moves": 1, **_CRASHES}),
    replace(TWO, name="two domains, one crash each", budget={"moves": 1, **_CRASHES}),
    replace(ONE, name="one domain there and back, repeated", budget={"moves": 2, "repeats": 1}),
    replace(TWO, name="two moves", budget={"moves": 2}),
    replace(ONE, name="demand ends, repeated", budget={"moves": 1, "repeats": 1, "ends 0": 1}),
]
RANDOM = replace(
    TWO,
    name="random",
    budget={
        "moves": 4,
        "repeats": 4,
        "coordinator": 2,
        "crash 0": 2,
        "crash 1": 2,
        "ends 0": 1,
        "ends 1": 1,
    },
)


class Violation(Exception):
    """An invariant does not hold; the text has the steps that lead there."""


def problems(state: State, domain_of: Sequence[str]) -> Iterator[str]:
    """What must never be."""
    first, second = state.shards
    for domain in first.domains & second.domains:
        yield f"{domain} is owned by both shards"
    for shard, bought in enumerate(state.bought):
        if bought > 1:
            yield f"s-{shard} bought {bought} machines for a need of one"
    yield from _conflicts(state, domain_of)


def _conflicts(state: State, domain_of: Sequence[str]) -> Iterator[str]:
    """Orders on their way that would take effect where another shard may order, too."""
    orders = [m for m in state.network if isinstance(m, Order)]
    if not orders:
        return
    fences = {(s, m): fencing.FencingToken(e, n) for s, m, e, n in state.fences}
    effective = {o for o in orders if _would_take_effect(state, o, fences)}
    for order in effective:
        if domain_of[order.machine] in state.shards[1 - order.shard].domains:
            yield f"{order} would take effect in a domain of s-{1 - order.shard}"
    for order in effective:
        for other in effective:
            if order.machine == other.machine and order.shard < other.shard:
                yield f"{order} and {other} would both take effect"


def _would_take_effect(
    state: State, order: Order, fences: Mapping[tuple[int, int], fencing.FencingToken]
) -> bool:
    if state.machines[order.machine].state != _LEGAL_FROM.get(order.action):
        return False
    fence = Fence(f"s-{order.shard}", order.epoch, order.sequence)
    try:
        fencing.check(fence, str(order.machine), fences.get((order.shard, order.machine)))
    except Fenced:
        return False
    return True


def is_settled(state: State) -> bool:
    """Each domain has one owner, as the coordinator thinks, and nothing is on its way."""
    at_rest = all(row.state is DomainState.OWNED for row in state.rows)
    owned = {row.topology_value: int(row.shard[-1]) for row in state.rows}
    return (
        at_rest
        and not state.network
        and all(shard.epoch and not shard.leaving for shard in state.shards)
        and all(
            (domain in state.shards[shard].domains) == (owner == shard)
            for domain, owner in owned.items()
            for shard in SHARDS
        )
    )


def canonical(state: State) -> State:
    """The same state with the smallest numbers: only the order of versions, fences and ids counts,
    and of ids only those that somebody may still mention.
    """
    return _Numbers(state).renamed()


class _Numbers:
    def __init__(self, state: State) -> None:
        self._state = state
        self._mentioned = set(_mentioned(state))
        fresh = sorted(int(n[2:]) for n in self._mentioned if n.startswith("i-"))
        self._ids = {f"i-{number}": f"i-{rank}" for rank, number in enumerate(fresh, 1)}
        self._versions, self._tokens = _ranks(_versions(state)), _ranks(_tokens(state))

    def renamed(self) -> State:
        state = self._state
        return state._replace(
            rows=tuple(
                msgspec.structs.replace(row, instruction_id=self._id(row.instruction_id))
                for row in state.rows
            ),
            ids=len(self._ids),
            sequence=self._versions[state.term, state.sequence],
            shards=tuple(self._shard(n, shard) for n, shard in enumerate(state.shards)),
            fences=tuple((s, m, e, self._tokens[s, e, n]) for s, m, e, n in state.fences),
            network=tuple(sorted(map(self._message, state.network), key=_message_order)),
        )

    def _id(self, number: str) -> str:
        return self._ids.get(number, number)

    def _answers(self, answers: Answers) -> Answers:
        kept = [(self._id(n), how, why) for n, how, why in answers if n in self._mentioned]
        return tuple(sorted(kept))

    def _message(self, message: Message) -> Message:
        match message:
            case Order():
                key = message.shard, message.epoch, message.sequence
                return message._replace(sequence=self._tokens[key])
            case Report():
                return message._replace(answers=self._answers(message.answers))
            case Reply():
                term = message.term
                told = (
                    (self._id(n), assigns, domain, self._versions[term, sequence])
                    for n, assigns, domain, sequence in message.instructions
                )
                return message._replace(instructions=tuple(told))

    def _shard(self, number: int, shard: Shard) -> Shard:
        term, _ = shard.newest
        return shard._replace(
            sequence=self._tokens.get((number, shard.epoch, shard.sequence), 0),
            newest=(term, self._versions[shard.newest]),
            leaving=tuple(sorted((self._id(n), domain) for n, domain in shard.leaving)),
            answered=self._answers(shard.answered),
            due=self._answers(shard.due),
        )


def _message_order(message: Message) -> tuple[str, str]:
    return type(message).__name__, repr(tuple(message))


def _mentioned(state: State) -> Iterator[str]:
    yield from (row.instruction_id for row in state.rows)
    for shard in state.shards:
        yield from (number for number, _ in shard.leaving)
        yield from (number for number, *_ in shard.due)
    for message in state.network:
        if isinstance(message, Report):
            yield from (number for number, *_ in message.answers)
        elif isinstance(message, Reply):
            yield from (number for number, *_ in message.instructions)


def _versions(state: State) -> set[tuple[int, ...]]:
    used: set[tuple[int, ...]] = {(state.term, state.sequence)}
    used.update(shard.newest for shard in state.shards)
    for message in state.network:
        if isinstance(message, Reply):
            used.update((message.term, each[3]) for each in message.instructions)
    return used


def _tokens(state: State) -> set[tuple[int, ...]]:
    used: set[tuple[int, ...]] = {(s, e, n) for s, _, e, n in state.fences}
    used |= {(n, s.epoch, s.sequence) for n, s in enumerate(state.shards) if s.sequence}
    used |= {(m.shard, m.epoch, m.sequence) for m in state.network if isinstance(m, Order)}
    return used


def _ranks(used: set[tuple[int, ...]]) -> dict[tuple[int, ...], int]:
    """The rank of the last number among those with the same numbers before it; 0 stays 0."""
    ranks: dict[tuple[int, ...], int] = {}
    count: Counter[tuple[int, ...]] = Counter()
    for each in sorted(used):
        count[each[:-1]] += each[-1] > 0
        ranks[each] = count[each[:-1]] if each[-1] else 0
    return ranks


class _Explored:
    """All states of a case, how each was reached, and from which ordinary steps lead to it."""

    def __init__(self, case: Case) -> None:
        start = case.start
        self.came: dict[State, tuple[State, tuple[object, ...]] | None] = {start: None}
        self.settled: list[State] = []
        self._before: defaultdict[State, list[State]] = defaultdict(list)
        self._case, self._model, queue = case, case.model, deque([start])
        while queue:
            state = queue.popleft()
            if is_settled(state):
                self.settled.append(state)
            queue.extend(self._fresh(state))

    def _fresh(self, state: State) -> Iterator[State]:
        for step in self._model.steps(state):
            after = canonical(step.after())
            known = self.came.setdefault(after, (state, step.what))
            if not step.is_fault:
                self._before[after].append(state)
            if known is not None and known[0] is state and known[1] == step.what:
                for problem in problems(after, self._case.domain_of):
                    raise Violation(self.story(problem, after))
                yield after

    def leading_to_rest(self) -> set[State]:
        """The states from which ordinary steps lead to rest."""
        found, queue = set(self.settled), deque(self.settled)
        while queue:
            fresh = set(self._before[queue.popleft()]) - found
            found |= fresh
            queue.extend(fresh)
        return found

    def story(self, problem: str, state: State) -> str:
        """The steps that lead to a state."""
        steps = []
        last = self.came[state]
        while last is not None:
            steps.append(last[1])
            last = self.came[last[0]]
        return "\n".join([problem, *(f"  {what}" for what in reversed(steps)), repr(state)])


def check_all(case: Case) -> int:
    """Try all interleavings; the number of states. Violation if an invariant breaks, or if no
    sequence of ordinary steps leads from a state to rest.
    """
    explored = _Explored(case)
    leading = explored.leading_to_rest()
    for state in explored.came:
        if state not in leading:
            raise Violation(explored.story("from here no domain comes to rest", state))
    return len(explored.came)


def check_random(case: Case, seed: int) -> int:
    """Play one schedule until everything is spent and at rest; the number of steps."""
    rng, model, state = random.Random(seed), case.model, case.start
    played: list[Step] = []
    for number in range(_LONGEST_SCHEDULE):
        steps = list(model.steps(state))
        if number > _UNSETTLED_STEPS:
            if is_settled(state):
                return number
            steps = [step for step in steps if not step.is_fault]
        played.append(rng.choice(steps))
        state = played[-1].after()
        if found := [*problems(state, case.domain_of)]:
            break
    else:
        found = ["nothing came to rest"]
    story = "\n".join(f"  {step.what}" for step in played)
    raise Violation(f"seed {seed}: {found[0]}\n{story}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.handover_search")
    parser.add_argument("--schedules", type=int, default=0, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    flags = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        if flags.schedules:
            _play(range(flags.first, flags.first + flags.schedules))
        else:
            for case in CASES:
                print(f"{case.name}: {check_all(case):,} states", flush=True)
    except Violation as violation:
        print(violation)
        return 1
    print(f"all invariants held ({time.monotonic() - began:.0f} s)")
    return 0


def _play(seeds: Sequence[int]) -> None:
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        steps = sum(pool.map(partial(check_random, RANDOM), seeds, chunksize=100))
    print(f"{len(seeds):,} schedules, {steps:,} steps")


if __name__ == "__main__":
    sys.exit(main())
