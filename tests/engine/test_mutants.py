"""Small wrong changes to the engine, which some scenario, or else the oracle, must notice.

`pytest -m slow tests/engine/test_mutants.py` plays all of them, in a copy of the source and without
compiling anything; that takes some minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
_PYTEST = (
    sys.executable, "-m", "pytest", "-q", "-x", "-c", os.devnull, "-p", "no:cacheprovider",
    # Examples have no deadline: a slow machine is no reason to notice a mutant.
    "--hypothesis-profile=ci",
    # Without our configuration nothing leaves out what is asked for by name.
    "-m", "not slow",
)  # fmt: skip
# Those that show a rule each. The oracle finds more, but only later, and says less.
_SHOWING = ("scenarios", "supply", "folding", "matching", "cost", "packing_memory", "found_by")
_ORACLE = "test_engine_oracle.py"

# Module, what is there once, and what is put there instead.
MUTANTS = [
    ("kernels/scoring", "return 2 * steps + (0 if own else 1)", "return 2 * steps"),
    ("kernels/scoring", "extra = 0.0 if own or", "extra = 0.0 if"),
    ("kernels/scoring", "        steps += _SCARCE_STEPS", "        steps += 0"),
    ("kernels/scoring", "deviation = abs(cpu * strategy.cpu - memory * strategy.memory)",
     "deviation = 0.0"),
    ("kernels/machine_groups", "if machines.max_priority[at] < priority or not fits(",
     "if not fits("),
    ("kernels/scoring", "                pods_allowed(classes, pending, pods, pod_class),\n", ""),
    ("kernels/scoring", "most = min(most, free[at, resource] // size)",
     "most = free[at, resource] // size"),
    ("kernels/placing", "        if _share_left(left, order, share) < least:\n",
     "        if False:\n"),
    ("kernels/placing", "    groups, end = pack_groups(\n",
     "    strategy = BALANCED\n    groups, end = pack_groups(\n"),
    ("kernels/placing", "for own_first in (False, True):", "for own_first in (False,):"),
    ("kernels/placing", "for own_first in (False, True):", "for own_first in (True,):"),
    ("kernels/placing", "    if not _withhold(machines, priorities, priority):", "    if True:"),
    ("state/cluster_packing",
     "                self._pack(order, priority, self.consolidating)\n\n",
     "                pass\n\n"),
    ("state/cluster_packing", "        self._orders, self.is_common = {}, False\n",
     "        self._orders = {}\n"),
    ("state/packings", "each = [consolidating(*pair) for pair in",
     "each = [consolidating(0.0, 0.0) for pair in"),
    ("state/packing_memory", "_words(left[its]), _words", "_words(0 * its), _words"),
    ("state/packing_memory", "            *map(_words, classes.sizes.T),\n", ""),
    ("state/packing_memory", "            _words(machines.max_priority),\n", ""),
    ("state/packing_memory", "self._of_foreign[last]", "np.uint64(0)"),
    ("kernels/placing_in_each", "        log_start[number + 1] = length + found",
     "        log_start[number + 1] = length"),
    ("kernels/placed", "(one < other and not additional[other])", "one < other"),
    ("kernels/placed", "(one < other and not additional[other])", "False"),
    ("fit/pod_classes",
     "            impossible[its] |= ~fit_some(self.sizes, its, capacity)", "            pass"),
    ("need_columns", "    if profile.same_key == HOSTNAME_LABEL:\n        return True\n", ""),
    ("fit/pod_classes", "np.lexsort((-share[its], needs.need[its]))",
     "np.lexsort((share[its], needs.need[its]))"),
    ("kernels/packing", "if found > level or got == pods:", "if got == pods:"),
    ("kernels/packing", "flavour, own = machines.flavour[at], machines.last_claimed_by[at] == need",
     "flavour, own = machines.flavour[at], False"),
    ("kernels/packing", "and (own or not only_own)", ""),
    ("kernels/machine_groups", "        or claims[one] != claims[other]\n", ""),
    ("kernels/gangs", "pods = min(left[pod_class], most - request.got[place], room)",
     "pods = min(left[pod_class], room)"),
    ("kernels/gangs", "        for own in (True, False):", "        for own in (False, True):"),
    ("kernels/gang_packing", "is_free(availability, pool.special[place], request.need)", "1"),
    ("kernels/gang_domains", "or (request.kept != NONE and best[NOT_RESERVED] > 0)", ""),
    ("kernels/gang_domains", "keys[4] = -request.whole if on_own else 0.0", "keys[4] = 0.0"),
    ("kernels/gang_domains", "keys[3] = -request.whole if on_clusters else 0.0",
     "keys[3] = 0.0"),
    ("placement/gang_pools", "        if self._seen < len(state.changes):", "        if False:"),
    ("placement/settled_gangs", "np.flatnonzero(np.isin(gangs, [*state.reserved])).tolist()", "[]"),
    ("phases/preemption_candidates", "            self._dirty.update(clusters)",
     "            pass"),
    ("fit/capacity", "left[matching, self.columns.column_of[name]] -= amount", "pass"),
    ("fit/capacity", "self.matcher.tolerating(overhead.tolerations) & ", ""),
    ("fit/matching", 'if taint.effect in _REPELLING', 'if True'),
    ("fit/matching", "met &= np.logical_or.reduce(", "met |= np.logical_or.reduce("),
    ("state/packing_order",
     "order = np.lexsort((its, -classes.dominant_share[its], choice, cluster, -priority))",
     "order = np.lexsort((its, -classes.dominant_share[its], cluster, -priority))"),
    ("phases/assign", "        self._place_additional()\n        changes", "        changes"),
    ("placement/acquire",
     "expected = expected_pods(state, index, parts_by_machine(state, index))", "pass"),
    ("placement/selection", "    if expected is None:\n        pending",
     "    if expected is None or _requests_scarce(state, index):\n        pending"),
    ("placement/growth", "return max(ADDITIONAL_PARTS, machines)", "return ADDITIONAL_PARTS"),
    ("placement/growth", "return max(ADDITIONAL_PARTS, machines)", "return machines"),
    ("placement/growth", " & ((classes.most < NO_LIMIT) == is_apart)", ""),
    ("phases/assign", "            self._use_headroom(index)\n", "            pass\n"),
    ("phases/assign", "        self._return_unused_headroom(index)\n", ""),
    ("phases/assign", "if not state.lacks(index) or index in state.not_acquiring:",
     "if not state.lacks(index):"),
    ("state/supply",
     "    return np.where(drains, np.append(priorities, ALWAYS)[reserving_need], ALWAYS)",
     "    return np.where(drains, ALWAYS, ALWAYS)"),
    ("state/supply", "np.lexsort((key[releasable], -cost))", "np.argsort(key[releasable])"),
    ("state/supply",
     "        key[releasable] = _RELEASABLE | np.arange(len(releasable))\n",
     "        pass\n"),
    ("state/claims", "    _keep_incoming(state, chosen, claimed)\n", ""),
    ("state/claims", "its = its[priorities[claimed[rows[its]]] == priorities[need[its]]]", "pass"),
    ("kernels/candidate_pool",
     "availability.priorities[reserving_need] < availability.priorities[need]", "False"),
    ("kernels/candidate_pool", "    left[WITHHELD] = 1", "    left[WITHHELD] = 0"),
    ("kernels/candidate_pool", "    if availability.backed_off_for_too[row] ==", "    if NONE =="),
    ("kernels/candidate_pool", "        availability.budget[MACHINES] -= 1", "        pass"),
    ("kernels/candidate_pool", "        availability.budget[MICROS] -= availability",
     "        availability.prices[0] + availability"),
    ("kernels/candidate_pool", "    if availability.supply_clusters[row] == availability.cluster:",
     "    if False:"),
    ("state/ceiling_budgets", "new = rows[self._supply_cluster[rows] != cluster]", "new = rows"),
    ("state/cycle_state", "self.budgets.charge(self.cluster_of(index), rows)", "pass"),
    ("placement/gangs", "if state.lacks(index) and index in state.at_ceiling:", "if False:"),
    ("phases/preempt", "            if index in state.at_ceiling:\n", "            if False:\n"),
    ("phases/preempt", "rows = take_first_fit(state, index, choice, [*free_pools, *pools])",
     "rows = rows[:0]"),
    ("placement/gangs", "elif state.lacks(index) and choice.whole:", "elif False:"),
    ("placement/gangs", " or (state.budgets.remaining(state.cluster_of(index)) < 0).any():", ":"),
    ("placement/gangs", "rows += islice(free, pods)", "rows += islice(free, 1)"),
    ("placement/selection", "    for part in parts:\n        own",
     "    for part in ():\n        own"),
    ("explain/explain", "len(free) or len(self._lower_priority(index, usable))", "True"),
    ("explain/explain", "(self._priority[holder] >= need.priority)", "True"),
    ("fit/folding", "constraints, group, first.priority_ceiling, sizes.total[its]",
     "constraints, group, 0, sizes.total[its]"),
    ("kernels/selection", "pool.costs[group] / candidates.use[at]", "pool.costs[group]"),
    ("kernels/selection", "return bool(candidates.use[at] > candidates.use[best])", "return False"),
    ("kernels/selection", "        return bool(mine < others)",
     "        return bool(mine > others)"),
    ("kernels/redundancy", "            dropped[one] = True", "            pass"),
    ("placement/free_pools", "np.argsort(~fleet.reclamation_bucket[rows], kind=\"stable\")",
     "np.argsort(fleet.reclamation_bucket[rows], kind=\"stable\")"),
    ("placement/selection", "others[(state.left[others] > 0)",
     "others[(state.left[others] < 0)"),
    ("placement/selection", "0.0 if _requests_scarce(state, index) else state", "state"),
    ("placement/selection", "    if _requests_scarce(state, index):", "    if False:"),
    ("placement/constrained", "return expected_pods(state, index, domains)", "return NO_PODS"),
    ("placement/constrained", "            from_class=first,\n", ""),
    ("placement/domains_to_enter", "np.flatnonzero(state.left[its])).tolist():",
     "np.flatnonzero(state.left[its])[:1]).tolist():"),
    ("kernels/candidate_pool",
     "free[group] += is_free(availability, row, need) and is_allowed(availability, row)",
     "free[group] += is_free(availability, row, need)"),
    ("kernels/placing", "\n    if _share_left(left, order, share) < least:\n        return end",
     "\n    if False:\n        return end"),
    ("placement/constrained", "return expected_pods(state, index, parts_by_machine(state, index))",
     "return NO_PODS"),
    ("placement/growth", "settings.growth / parts", "settings.growth"),
    ("placement/growth", "(2 * points + 1)", "(2 * points)"),
    ("fit/cost", "        return np.where(interruption_probability > 0, np.inf, price)",
     "        return price"),
    ("kernels/topology", "    if counting < terms.min_domains[term]:", "    if False:"),
    ("kernels/topology", "if pods >= minimum.pods[term] + terms.max_skew[term] or", "if"),
    ("kernels/topology", "        if _note_pod(terms, minimum, at):",
     "        if _note_pod(terms, minimum, at) and False:"),
    ("kernels/topology", "        if there != key >> span_bits:", "        if False:"),
    ("kernels/topology", "or pods >= terms.most[term]:\n            return -1",
     "or False:\n            return -1"),
    ("placement/topology_terms", "            its &= affine\n", "            pass\n"),
    ("placement/topology_terms", "            its &= untainted\n", "            pass\n"),
    ("placement/topology_terms", "    counts[0, sorted(entered)] = True\n", ""),
    ("placement/domains_to_enter", "    return {(code,) for code in best}",
     "    return {(code,) for code in chosen | {*rooms}}"),
    ("placement/constrained", "    terms.max_skew[:] = NO_LIMIT // 4\n", ""),
    ("placement/constrained", "(turns[claimant] > turns[index])",
     "(turns[claimant] > turns[index] + (1 << 31))"),
    ("placement/constrained", "(later, lower) if (later & ~lower).any() else (lower,)", "(later,)"),
    ("state/packing_order", "constrained, plain = 1, 2", "constrained, plain = 2, 1"),
    ("state/packing_order", " + number\n    return turns", "\n    return turns"),
    ("state/last_decision", "each.pods - lost * each.most", "each.pods"),
    ("phases/assign", "            self._take_arrived(index)\n", ""),
    ("placement/gangs", ", in_service_only=not choice.whole)", ")"),
    ("placement/settled_gangs", ", in_service_only=True)", ")"),
    ("placement/gangs",
     "[*np.flatnonzero(there & own).tolist(), *np.flatnonzero(there & ~own).tolist()]",
     "np.flatnonzero(there).tolist()"),
    ("kernels/gang_packing", "keys[NOT_RESERVED] = 0, domain.code != request.kept",
     "keys[NOT_RESERVED] = 0, 0"),
    ("kernels/gang_packing", "= room, -number, domain.code", "= -room, -number, domain.code"),
    ("kernels/gang_packing", "    keys[INCOMPLETE] = 1\n", ""),
    ("kernels/folding", "if works[at] and priority[at] < lowest[flavour[at]]:", "if False:"),
    ("phases/preempt", "if len(state.packing_of(index)) > machines:", "if False:"),
    ("phases/preempt", "            self._dirty_clusters.add(cluster)", "            pass"),
    ("phases/preempt", "assignment.place_again if is_gang else assignment.serve",
     "assignment.serve if not is_gang else lambda _: None"),
    ("placement/constrained", "if chosen in state.unused_orders(index):", "if False:"),
    ("phases/preempt",
     "found places meanwhile.\n            self._candidates.refresh([state.cluster_of(index)])",
     "found places meanwhile."),
    ("phases/preempt",
     "            if state.lacks(index) and index not in state.not_acquiring and not additional:",
     "            if state.lacks(index) and index not in state.not_acquiring:"),
    ("phases/preempt", "if not choice.whole or not self._fill", "if not self._fill"),
    ("kernels/candidates", "if table.priority[at] < priority:",
     "if table.priority[at] <= priority:"),
    ("kernels/candidates", "return bool(incomplete[holder])", "return False"),
    ("kernels/candidates", "if table.tier[at] >= tiers or (", "if ("),
    ("phases/preemption_candidates", " and index not in self._promised", ""),
    ("phases/preemption_candidates", "keys = np.stack((-score, new, flavour_tier, tier))",
     "keys = np.stack((tier, new, flavour_tier, -score))"),
    ("phases/preemption_candidates", "if incoming.any() else at", "if False else at"),
    ("phases/victims", "(900_000, 10)", "(1_000_000, 10)"),
    ("phases/reclaim",
     "return acquired is None or state.now_seconds - acquired >= hold_seconds", "return True"),
    ("phases/reclaim", "np.lexsort((counted, fleet.disruption_cost[rows]))",
     "np.lexsort((fleet.disruption_cost[rows],))"),
    ("phases/reclaim", "allowed = np.isfinite(cost)\n", "allowed = ~np.isinf(cost)\n"),
    ("phases/reclaim", "has_decreased | ((cost == 0) & self._demand_is_stable(cluster))",
     "self._demand_is_stable(cluster)"),
    ("phases/reclaim", "parts += [part[half:], part[:half]]", "parts += [part[:half]]"),
    ("phases/repacking", " or not self._domains_stay(gone)", ""),
    ("phases/reclaim", "not grows and memory.has_fallen_since_it_grew(fell)", "True"),
    ("phases/reclaim",
     "return rose is None or state.now_seconds - rose >= state.settings.reclaim_hold_seconds",
     "return True"),
    ("phases/preempt",
     "return state.arrived.release(state.unavailable) or set_free", "return set_free"),
    ("state/last_decision",
     "open_ = self._demand.cluster[holder] == self._demand.cluster[index]",
     "open_ = self._demand.cluster[holder] != NONE"),
    ("state/last_decision",
     "open_ = self._demand.cluster[holder] == self._demand.cluster[index]",
     "open_ = holder == index"),
    ("state/last_decision", "open_ &= ~self._additional[holder]", "pass"),
    ("phases/reclaim", " or self._holds.grows(cluster)", ""),
    ("cycle_memory", "earlier = self.peaks[2:]", "earlier = self.peaks[1:]"),
    ("cycle_memory", "earlier = self.peaks[2:]", "earlier = self.peaks[3:]"),
    ("cycle_memory", "if demand <= self.peaks[0]:", "if True:"),
    ("cycle_memory", " and demand >= max(self.peaks) * (1 - _NOISE)", ""),
    ("cycle_memory", "searched < since + hold <= now_seconds", "False"),
    ("cycle_memory", "(1 + _NOISE)", "2"),
    ("phases/reclaim_holds", "factor = min(_MAX_HOLD_FACTOR, factor * 2)", "factor = 1"),
    ("phases/reclaim_holds", "factor * 2)", "factor * 4)"),
    ("phases/reclaim_holds", "most = min(most, self._held(cluster, 1, len(rows)))", "pass"),
    ("phases/reclaim_holds", "and each.since_seconds < reclaimed", ""),
    ("phases/reclaim_holds", "left[n] <= kept[n].machines and", ""),
    ("phases/reclaim_holds", " and len(due) >= kept[n].held", ""),
    ("phases/reclaim_holds", "state.flavour_fit(index).accepted[flavour]", "flavour >= 0"),
    ("phases/reclaim_holds", "left[number] -= 1", "pass"),
    ("phases/reclaim_holds", "spare -= capacity[at]", "pass"),
    ("phases/reclaim_holds", " and len(due) >= long_held", ""),
    ("phases/reclaim_holds", "stays |= disrupts and", "stays |="),
    ("cycle_memory", "if grows:\n            return replace(self, capacity_ratio",
     "if True:\n            return replace(self, capacity_ratio"),
    ("cycle_memory", "self.capacity_ratio + additional / demand", "self.capacity_ratio"),
    ("phases/reclaim", "            found.append(its[~here])",
     "            found.append(its[here])"),
    ("phases/repacking", " and fitting(packing.free, place, sizes, pod_class) >= pods", ""),
    ("phases/repacking", "            self._keep_gangs(level.gangs)\n",
     "            [self._keep_gangs(each.gangs) for each in levels if level is levels[0]]\n"),
    ("phases/repacking", "return margin - trial.unplaced(self._levels, margin)", "return margin"),
    ("phases/repacking", "self._levels, self._placed, self._margin\n",
     "self._levels, self._placed, np.zeros_like(self._placed)\n"),
    ("phases/reclaim", "            state.running[index] -= int(", "            int("),
    ("phases/reclaim", "return due if self._is_stable(cluster) else", "return due if True else"),
    ("phases/reclaim_holds", "                if not before.surplus:\n",
     "                if True:\n"),
    ("cycle_memory", "min(each.machines - reclaimed, machines)", "min(each.machines, machines)"),
    ("cycle_memory", "surplus.append(SurplusSince(machines, now_seconds))",
     "surplus = [SurplusSince(machines, now_seconds)]"),
    ("kernels/placed", "alone[found[0]] = True", "alone[found[-1]] = True"),
    ("kernels/placed", "if not may_fit_without(machines, rows, alone, nothing):", "if False:"),
    ("phases/headroom", "if not self._has_room(index) and len(chosen", "if len(chosen"),
    ("phases/headroom", "                reclaimable[kept] = False\n", ""),
    ("phases/limits", "    return max(1, math.floor", "    return max(0, math.floor"),
    ("phases/carryover", "            if state.lacks(index):\n                continue\n", ""),
    ("phases/carryover", "last.cycles + 1", "1"),
    ("explain/explain", "if not len(usable) or not self._short[index].sizes:",
     "if not len(usable):"),
]  # fmt: skip


def _path(module: str) -> Path:
    return Path("bigfleet") / "engine" / f"{module}.py"


@pytest.mark.parametrize(("module", "before", "after"), MUTANTS)
def test_each_mutation_changes_one_place(module: str, before: str, after: str) -> None:
    """Or it would silently test nothing once that place has changed."""
    source = (REPOSITORY / _path(module)).read_text()
    assert (source.count(before), before == after) == (1, False)


@pytest.fixture(scope="session")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the engine and of its scenarios."""
    folder = tmp_path_factory.mktemp("mutants")
    for part in ("bigfleet", "tests/engine"):
        junk = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / part, folder / part, ignore=junk)
    return folder


@pytest.fixture
def mutated(copied: Path, module: str, before: str, after: str) -> Iterator[Path]:
    """The copy, with one mutation."""
    sound = (copied / _path(module)).read_text()
    (copied / _path(module)).write_text(sound.replace(before, after))
    yield copied
    (copied / _path(module)).write_text(sound)


def _failures(folder: Path) -> str:
    here = folder / "tests" / "engine"
    files = [f for f in sorted(here.glob("test_*.py")) if any(w in f.name for w in _SHOWING)]
    environment = os.environ | {
        "NUMBA_DISABLE_JIT": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(folder),
    }
    ended = subprocess.run(
        [*_PYTEST, *files, here / _ORACLE],
        cwd=folder,  # it comes first where modules are looked for
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return ended.stdout if ended.returncode else ""


@pytest.mark.slow
def test_the_sound_engine_passes(copied: Path) -> None:
    """Or the others would prove nothing."""
    assert _failures(copied) == ""


@pytest.mark.slow
@pytest.mark.parametrize(("module", "before", "after"), MUTANTS)
def test_each_mutant_is_noticed(mutated: Path) -> None:
    """Some scenario fails, or the oracle decides otherwise."""
    assert "FAILED" in _failures(mutated)
