"""Small wrong changes to the engine, each of which some scenario must notice.

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
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "-c", os.devnull, "-p", "no:cacheprovider")
# Those that show a rule each; properties would find some mutants, too, but only later.
_SHOWING = ("scenarios", "supply", "normalise", "matching", "cost")

# Module, what is there once, and what is put there instead.
MUTANTS = [
    ("packing", "return 2 * steps + (0 if own else 1)", "return 2 * steps"),
    ("packing", "extra = 0.0 if own or", "extra = 0.0 if"),
    ("packing", "        steps += _SCARCE_STEPS", "        steps += 0"),
    ("packing", "deviation = abs(cpu * manner.cpu - memory * manner.memory)", "deviation = 0.0"),
    ("packing", "    if machines.open_from[at] < priority:", "    if False:"),
    ("packing", "left[klass], open_to(classes, pending, pods, klass))", "left[klass])"),
    ("packing", "most = min(most, free[at] // size[at])", "most = free[at] // size[at]"),
    ("book", "        self._pack(order, priority, SPREAD)\n        # In", "        # In"),
    ("book", "        self._pack(order, priority, self.gathering)",
     "        self._pack(order, priority, SPREAD)"),
    ("book", "np.where(self._classes.kind[need] == Kind.ADDITIONAL, need - _MOST_NEEDS, need)",
     "need"),
    ("pods", "            impossible[classes[~held]] = True", "            pass"),
    ("pods", "impossible |= np.array(hosts, np.bool_)[self.need]", "pass"),
    ("pods", "np.lexsort((np.arange(len(self.need)), -self.share, self.need))",
     "np.lexsort((np.arange(len(self.need)), self.share, self.need))"),
    ("capacity", "left[matching, self._columns.place[name]] -= amount", "pass"),
    ("capacity", "self._matcher.tolerating(overhead.tolerations) & ", ""),
    ("matching", 'if taint.effect in _REPELLING', 'if True'),
    ("matching", "met &= np.logical_or.reduce(", "met |= np.logical_or.reduce("),
    ("assign", "order = np.lexsort((its, -classes.share[its], choice, -priority, cluster))",
     "order = np.lexsort((its, -classes.share[its], -priority, cluster))"),
    ("assign", "        self._count_additional()\n        changes", "        changes"),
    ("assign", "coming &= fleet.wanted_by[book.rows] != index", "pass"),
    ("assign", "        self._use_reserve(index)\n", ""),
    ("assign", "or index in state.expired or self", "or self"),
    ("state", "        return np.where(drains, np.append(self.priorities, ALWAYS)[keeper], ALWAYS)",
     "        return np.where(drains, ALWAYS, ALWAYS)"),
    ("state", "            np.where(releasable, -cost, 0.0),\n            releasable,\n", ""),
    ("purchase", "stock.priorities[keeper] >= stock.priorities[need]", "True"),
    ("purchase", "    left[WITHHELD] = 1", "    left[WITHHELD] = 0"),
    ("purchase", "        stock.allowance[MACHINES] -= 1", "        pass"),
    ("purchase", "        stock.allowance[MICROS] -= stock", "        stock.prices[0] + stock"),
    ("purchase", "    if stock.homes[row] == stock.cluster:", "    if False:"),
    ("allowances", "new = rows[self._homes[rows] != cluster]", "new = rows"),
    ("headroom", "state.allowances.order(state.cluster_of(index), rows)", "pass"),
    ("gangs", "if state.lacks(index) and index in state.at_ceiling:", "if False:"),
    ("preempt", "if state.lacks(index) and index in state.at_ceiling:", "if False:"),
    ("explain", "(len(free) or len(self._lower(index, usable)))", "True"),
    ("explain", "(self._priority[holder] >= need.priority)", "True"),
    ("normalise", "sizes, group, gang.most_priority)", "sizes, group)"),
    ("purchase", "rate[group] = offer.costs[group] / use[group]",
     "rate[group] = offer.costs[group]"),
    ("purchase", "        return bool(use[one] > use[other])", "        return False"),
    ("purchase", "        return bool(mine < others)", "        return bool(mine > others)"),
    ("purchase", "            dropped[one] = True", "            pass"),
    ("acquire", "return rows[np.lexsort((fleet.tie_break[rows], penalty))]",
     "return rows[np.lexsort((fleet.tie_break[rows], -penalty))]"),
    ("acquire", "further = others[(left[others] > 0)",
     "further = others[(left[others] < 0)"),
    ("cost", "        return np.where(interruption_probability > 0, np.inf, price)",
     "        return price"),
    ("constraints", "if domains >= terms.min_domains[term] else 0", "if True else 0"),
    ("constraints", "if pods >= fewest[term] + terms.max_skew[term] or", "if"),
    ("constraints", "or pods >= terms.most[term]:\n            return -1",
     "or False:\n            return -1"),
    ("constrained", "            its &= affine\n", "            pass\n"),
    ("constrained", "            its &= untainted\n", "            pass\n"),
    ("constrained", "    counts[0, sorted(entered)] = True\n", ""),
    ("constrained", "    return {(code,) for code in best}",
     "    return {(code,) for code in chosen | {*rooms}}"),
    ("gangs", "count_at_home(state, index, in_service_only=True)", "count_at_home(state, index)"),
    ("gangs", "[*np.flatnonzero(there & own).tolist(), *np.flatnonzero(there & ~own).tolist()]",
     "np.flatnonzero(there).tolist()"),
    ("domains", "*(-_steps(each) for each in (own, clusters, gentle)), codes != kept)",
     "*(-_steps(each) for each in (own, clusters, gentle)))"),
    ("domains", "        keys = (room, *(-", "        keys = (-room, *(-"),
    ("domains", "*keys, ~whole))[0]", "*keys))[0]"),
    ("normalise", "(self._lowest_priority < need.priority)",
     "(self._lowest_priority > need.priority)"),
    ("preempt", "if len(state.book_of(index)) > machines:", "if False:"),
    ("preempt", "            self._dirty.add(cluster)", "            pass"),
    ("preempt",
     "            if state.lacks(index) and index not in state.expired and not additional:",
     "            if state.lacks(index) and index not in state.expired:"),
    ("preempt", "        if not home.whole or not self._fill", "        if not self._fill"),
    ("candidates", "open_ = (self._priority < priority) | promised",
     "open_ = (self._priority <= priority) | promised"),
    ("candidates", "            open_ |= self._gives_way(priority)", "            pass"),
    ("candidates", "            open_ &= self._tier < COMING", "            pass"),
    ("candidates", "keys = np.stack((-score, new, late, tier))",
     "keys = np.stack((tier, new, late, -score))"),
    ("candidates", "if coming.any() else at", "if False else at"),
    ("victims", "(900_000, 10)", "(1_000_000, 10)"),
    ("recount", "state.demand.needs[index].is_additional or index", "index"),
    ("release", "np.lexsort((counted, fleet.release_cost[rows]))",
     "np.lexsort((fleet.release_cost[rows],))"),
    ("release", "allowed = np.isfinite(cost)\n", "allowed = ~np.isinf(cost)\n"),
    ("release", "has_fallen | ((cost == 0) & self._stands_still(cluster))",
     "self._stands_still(cluster)"),
    ("release", "parts += [part[half:], part[:half]]", "parts += [part[:half]]"),
    ("recount", " or not self._domains_stay(gone)", ""),
    ("release", "not grows and (grown is None or fell >= grown)", "True"),
    ("release",
     "return rose is None or state.now_seconds - rose >= state.settings.reclaim_hold_seconds",
     "return True"),
    ("release", "factor = min(_LONGEST_FACTOR, memory.hold_factor * 2)", "factor = 1"),
    ("release", "memory.hold_factor * 2)", "memory.hold_factor * 4)"),
    ("release", "most = min(most, held)", "pass"),
    ("release", "            found.append(its[~here])", "            found.append(its[here])"),
    ("recount", "trial.places(self._levels, self._wanted)",
     "trial.places(self._levels, self._placed)"),
    ("release", "return due if self._is_settled(cluster) else", "return due if True else"),
    ("release", "        if not had_spare:\n", "        if True:\n"),
    ("carry", "min(each.machines - reclaimed, machines)", "min(each.machines, machines)"),
    ("carry", "spare.append(Spare(machines, now_seconds))",
     "spare = [Spare(machines, now_seconds)]"),
    ("recount", "np.argsort(used, kind=\"stable\")", "np.argsort(-used, kind=\"stable\")"),
    ("recount", "if len(least) and is_conceivable(book, alone):", "if len(least):"),
    ("headroom", "            if not passes and not self._has_room(index):",
     "            if not passes:"),
    ("rails", "    return max(1, math.floor", "    return max(0, math.floor"),
    ("ageing", "            if state.lacks(index):\n                continue\n", ""),
    ("ageing", "last.cycles + 1", "1"),
    ("explain", "if not len(usable) or not self._short[index].sizes:", "if not len(usable):"),
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
        [*_PYTEST, *files],
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
    """Some scenario fails."""
    assert "FAILED" in _failures(mutated)
