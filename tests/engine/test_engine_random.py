"""Random fleets exercise all features of decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from bigfleet.engine.decide import decide
from bigfleet.engine.decision import ActionType
from bigfleet.engine.snapshot import NONE
from bigfleet.model import penalty
from bigfleet.model.group import ADDITIONAL, FoldedGangs
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need
from tests.engine.engine_history import RandomHistory
from tests.engine.engine_random import GPU, Case, case_with_memory, unfolded_case
from tests.engine.engine_rig import NOW, SETTINGS, checked

_CASES = 200


def _of_need(need: Need) -> Iterator[str]:
    wanted = need.profile
    hard = [term for term in wanted.spread if term.hard]
    cpus = [dict(size.amounts).get("cpu", 0) for size in need.sizes]
    features = {
        "eight sizes": len(need.sizes) >= 7,
        "three orders of magnitude": max(cpus) >= 100 * min(cpus) > 0,
        "many pods of a size": any(size.pods > 256 for size in need.sizes),
        "conditions": bool(wanted.requirements),
        "alternatives": bool(wanted.alternatives),
        "tolerations": bool(wanted.tolerations),
        "anti-affinity": bool(wanted.anti_affinity) and wanted.same_key is None,
        "one pod a machine": HOSTNAME_LABEL in wanted.anti_affinity,
        "hard spread": bool(hard),
        "two hard spreads": len(hard) > 1,
        "least number of domains": any(term.min_domains > 1 for term in hard),
        "preferred spread": any(not term.hard for term in wanted.spread),
        "gang": wanted.same_key is not None,
        "gang apart": wanted.same_key is not None and bool(wanted.anti_affinity),
        "folded gang": isinstance(need.group, FoldedGangs),
        "additional": need.group == ADDITIONAL,
        "never preempts": wanted.never_preempts,
        "pinned": wanted.interruption_bucket == penalty.PINNED,
        "scarce": any(GPU in dict(size.amounts) for size in need.sizes),
    }
    yield from (name for name, there in features.items() if there)


def _of_case(case: Case) -> set[str]:
    fleet, demand, _ = case
    decision = decide(*case, SETTINGS, NOW)
    found = {name for need in demand.needs for name in _of_need(need)}
    found |= {f"state {MachineState(int(state)).name}" for state in np.unique(fleet.state)}
    features = {
        "taints": any(flavour.taints for flavour in fleet.flavours),
        "overheads": any(demand.overheads.values()),
        "unreachable": bool(demand.unreachable),
        "suspended": bool(demand.suspended),
        "bounded priority": any(n.priority < n.profile.priority for n in demand.needs),
        "at a ceiling": bool(decision.at_ceiling),
        "held back": fleet.backed_off is not None and bool(fleet.backed_off.any()),
        "limited": any(flavour.limited for flavour in fleet.flavours),
        "impossible": any(s.impossible for s in decision.shortfalls),
        "headroom": bool(decision.headroom),
        "reclaims kept back": decision.reclaims_capped > 0,
        "reservation": bool(decision.cycle_memory.reservations),
        "several clusters": len({*demand.cluster.tolist()}) > 1,
    }
    found |= {name for name, there in features.items() if there}
    for action in decision.actions:
        found.add(f"{action.type.value}{' for nobody' if action.need == NONE else ''}")
    return found


def test_random_cases_have_all_features() -> None:
    """Each occurs in at least one of 25 cases, most in far more."""
    times = Counter(name for seed in range(_CASES) for name in _of_case(case_with_memory(seed)))
    assert {name: n for name, n in times.items() if n < _CASES // 25} == {}
    kinds = {f"state {state.name}" for state in MachineState}
    orders = {"Bootstrap", "Provision", "Preempt", "Reclaim", "Reclaim for nobody"}
    assert kinds | orders | {"Delete for nobody", "gang apart", "two hard spreads"} <= {*times}
    assert len(times) == 19 + len(kinds) + 13 + 6, sorted(times)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_always_gives_the_same_random_fleet(seed: int) -> None:
    """Otherwise failures could not be reproduced."""
    one, other = unfolded_case(seed), unfolded_case(seed)
    assert one[0].state.tolist() == other[0].state.tolist()
    assert one[1].needs == other[1].needs


def test_random_histories_have_all_actions_and_changes() -> None:
    """All action types are carried out, and demand comes and goes."""
    kinds, sizes = set[ActionType](), set[int]()
    for seed in range(12):
        history = RandomHistory(seed)
        for _ in range(8):
            decision = checked(*history.case[:2], SETTINGS, history.now, history.case.cycle_memory)
            kinds |= {action.type for action in decision.actions}
            sizes.add(sum(need.pods for need in history.case.demand.needs))
            history.after(decision)
    assert kinds == {*ActionType}
    assert len(sizes) > 30
