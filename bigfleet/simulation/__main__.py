"""`python -m bigfleet.simulation explore|replay`: search for seeds that violate an invariant.

Exit code 0 if all seeds pass, 1 if some fail; each of those is printed with its replay command.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from bigfleet.simulation.explorer import TRIALS, SeedResult, explore

# About 140 cycles each: more than 100,000 in all.
_SEEDS = 850
_REPLAY = "python -m bigfleet.simulation replay"


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore or replay; return the exit code."""
    flags = _parser().parse_args(arguments)
    return int(flags.do(flags))


def _explore(flags: argparse.Namespace) -> int:
    seeds = range(flags.first, flags.first + flags.seeds)
    began = time.monotonic()
    with ProcessPoolExecutor(flags.jobs, get_context("spawn")) as pool:
        failed, cycles, actions = _watch(
            flags.worlds,
            pool.map(partial(explore, trial_name=flags.worlds), seeds, chunksize=1),
        )
    seconds = time.monotonic() - began
    verdict = f"{failed} seeds FAILED" if failed else "all invariants held"
    print(
        f"explore: {len(seeds)} {flags.worlds} worlds from seed {flags.first}, "
        f"{cycles} cycles, "
        f"{actions} actions in {seconds:.0f} s: {verdict}"
    )
    return 1 if failed else 0


def _watch(worlds: str, outcomes: Iterable[SeedResult]) -> tuple[int, int, int]:
    failed = cycles = actions = 0
    for outcome in outcomes:
        cycles, actions = cycles + outcome.cycles, actions + outcome.actions
        if outcome.problems:
            failed += 1
            replay = f"{_REPLAY} {outcome.seed} --worlds {worlds}"
            print(f"seed {outcome.seed} ({replay}):", flush=True)
            for problem in outcome.problems:
                print(f"  {problem}", flush=True)
    return failed, cycles, actions


def _replay(flags: argparse.Namespace) -> int:
    outcome = explore(flags.seed, flags.worlds)
    for line in outcome.lines:
        print(line)
    for problem in outcome.problems:
        print(f"PROBLEM: {problem}")
    verdict = "FAILED" if outcome.problems else "all invariants held"
    print(f"seed {outcome.seed}: {outcome.cycles} cycles, story {outcome.digest}: {verdict}")
    return 1 if outcome.problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bigfleet.simulation")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    exploring = commands.add_parser("explore", help="run the worlds of many seeds")
    exploring.add_argument("--seeds", type=int, default=_SEEDS, metavar="N")
    exploring.add_argument("--first", type=int, default=1, metavar="SEED")
    exploring.add_argument(
        "--jobs", type=int, default=None, metavar="N", help="processes (default: one per core)"
    )
    exploring.set_defaults(do=_explore)
    replaying = commands.add_parser("replay", help="run one seed's world and print its story")
    replaying.add_argument("seed", type=int)
    replaying.set_defaults(do=_replay)
    for command in (exploring, replaying):
        command.add_argument("--worlds", choices=TRIALS, default=next(iter(TRIALS)))
    return parser


if __name__ == "__main__":
    sys.exit(main())
