"""`loaddriver compare`: whether a change made pods slower or dearer."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from controlplane.request import request_from
from controlplane.resolve import resolve
from loaddriver.commands.common import say
from loaddriver.compare.comparison import Comparison, json_schema
from loaddriver.compare.evidence import Evidence
from loaddriver.compare.exact import VOID_LIMIT
from loaddriver.compare.fact_runner import gather
from loaddriver.compare.injection import (
    KUBE_SCHEDULER,
    Fault,
    injected,
    injection_of,
    seconds_of,
)
from loaddriver.compare.outputs import JSON, PAGE, write_comparison
from loaddriver.compare.request import (
    DEFAULT_PAIRS,
    Ports,
    Request,
    least_effect_of,
    session_spec,
)
from loaddriver.compare.runner import ProcessRunner
from loaddriver.compare.session import Session
from loaddriver.compare.state import (
    SESSION,
    SessionSpec,
    SessionState,
    SideSpec,
    read_state,
    write_state,
)
from loaddriver.compare.stored import compare_stored
from loaddriver.compare.systems import checkout, kept_copy
from loaddriver.compare.wording import noise_sentence
from loaddriver.errors import ExitCode, InfrastructureError, ProfileError
from loaddriver.profile.loading import PROFILES, load_profile
from loaddriver.report.results import read_pods
from loaddriver.run.provenance import ROOT
from loaddriver.run.system import component_at, scheduler_config_at, system_at

_PROFILE, _PROFILE_AT_ONCE = "compare-50", "compare-25"
_SYSTEMS = ROOT / "build" / "systems"
_OF_A_SESSION = (
    "base",
    "head",
    "profile",
    "at_once",
    "profiles",
    "seed",
    "pairs",
    "least_effect",
    "kubernetes",
    "scheduler_config",
    "component",
    "set_base",
    "set_head",
    "inject",
)


def add(commands: Any) -> None:
    """Register the commands."""
    command = commands.add_parser(
        "compare",
        help="measure two systems in interleaved pairs, or compare results, and give a verdict",
        epilog=f"exit codes: 0 not worse, 2 refused, 4 regression, 5 {VOID_LIMIT} void runs, "
        "7 not enough data",
    )
    command.add_argument(
        "results",
        nargs="*",
        type=Path,
        metavar="RESULTS",
        help="two folders to compare (a run, several, or a session), or one session to judge",
    )
    command.add_argument("--base", metavar="REV", help="a revision; . is this checkout as it is")
    command.add_argument("--head", metavar="REV", help="the same for the other side")
    command.add_argument(
        "--profile", help=f"default {_PROFILE}; with --at-once {_PROFILE_AT_ONCE}, half of its load"
    )
    command.add_argument(
        "--at-once",
        action="store_true",
        help="play both runs of a pair at the same time, in half of the time",
    )
    command.add_argument("--profiles", type=Path, default=PROFILES, metavar="DIR")
    command.add_argument("--seed", type=int, help="instead of the profile's")
    command.add_argument(
        "--pairs", default=DEFAULT_PAIRS, metavar="N..M", help=f"default {DEFAULT_PAIRS}"
    )
    command.add_argument("--least-effect", type=float, default=10.0, metavar="PERCENT")
    command.add_argument("--out", type=Path, default=Path("results"), metavar="DIR")
    command.add_argument("--resume", type=Path, metavar="SESSION", help="go on with a session")
    command.add_argument("--force", action="store_true", help="compare what should not be compared")
    command.add_argument("--no-facts", action="store_true", help="begin with the pairs at once")
    command.add_argument("--schema", action="store_true", help=f"print the JSON schema of {JSON}")
    _difference_flags(command)
    command.set_defaults(do=partial(_compare, command))


def _difference_flags(command: argparse.ArgumentParser) -> None:
    """Ways to make the two sides differ, besides their revisions."""
    command.add_argument("--kubernetes", metavar="A,B", help="a version for each side")
    command.add_argument("--scheduler-config", metavar="A,B", help="a file for each side")
    command.add_argument(
        "--component",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="a binary for HEAD; NAME=PATH,PATH: for both sides",
    )
    for side in ("base", "head"):
        command.add_argument(
            f"--set-{side}", action="append", default=[], metavar="KEY=VALUE", help=f"for {side}"
        )
    command.add_argument(
        "--inject",
        default="",
        metavar="FAULT=+P%",
        help="make HEAD worse by a share of its mean, to see whether that is found: "
        f"{', '.join(Fault)}",
    )


def _compare(command: argparse.ArgumentParser, flags: argparse.Namespace) -> ExitCode:
    if flags.schema:
        print(json_schema().decode())
        return ExitCode.PASS
    if flags.results:
        return _stored(flags)
    with _interrupted_by_signals():
        if flags.resume:
            _refuse_changes(command, flags)
            return _play(flags, flags.resume, read_state(flags.resume))
        return _new_session(flags)


def _refuse_changes(command: argparse.ArgumentParser, flags: argparse.Namespace) -> None:
    """Raises ProfileError if a session is to go on as another one than was begun."""
    changed = [name for name in _OF_A_SESSION if getattr(flags, name) != command.get_default(name)]
    if changed:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
        raise ProfileError(
            [
                f"--resume goes on with what {flags.resume} was begun with: leave out {names}, or "
                "begin another session"
            ]
        )


def _new_session(flags: argparse.Namespace) -> ExitCode:
    folder = _new_folder(flags.out)
    ports = Ports(
        system=_system,
        scheduler_config=lambda path: str(
            kept_copy(folder / "scheduler-configs", scheduler_config_at(Path(path)))
        ),
        component=component_at,
    )
    flags.profile = flags.profile or (_PROFILE_AT_ONCE if flags.at_once else _PROFILE)
    for overrides in (flags.set_base, flags.set_head):
        load_profile(flags.profile, flags.profiles, overrides, flags.seed)
    order_seed = int.from_bytes(os.urandom(4), "big")
    state = SessionState(spec=session_spec(_request(flags), ports, order_seed))
    folder.mkdir(parents=True, exist_ok=True)
    write_state(folder, state)
    say(f"session {folder}; after an interruption: loaddriver compare --resume {folder}")
    return _play(flags, folder, state)


def _request(flags: argparse.Namespace) -> Request:
    return Request(
        profile=flags.profile,
        base=flags.base,
        head=flags.head,
        seed=flags.seed,
        pairs=flags.pairs,
        least_effect_percent=flags.least_effect,
        kubernetes=flags.kubernetes,
        scheduler_config=flags.scheduler_config,
        components=flags.component,
        overrides={"base": flags.set_base, "head": flags.set_head},
        inject=flags.inject,
        at_once=flags.at_once,
        profiles="" if flags.profiles == PROFILES else str(flags.profiles.resolve()),
    )


def _system(revision: str) -> str:
    """The checkout of a revision, set up and usable; "" for this one."""
    found = checkout(ROOT, revision, _SYSTEMS, say)
    return "" if found is None else str(system_at(found, os.environ).root)


def _play(flags: argparse.Namespace, folder: Path, state: SessionState) -> ExitCode:
    spec = state.spec
    profiles = Path(spec.profiles) if spec.profiles else PROFILES
    runner = ProcessRunner(spec, profiles)
    session = Session(folder.resolve(), state, runner, say, flags.force)
    if spec.inject:
        session.inject = partial(_inject, profiles, folder / "injected")
    found = session.play(
        lambda: [] if flags.no_facts else gather(spec.base.sut, spec.head.sut, say)
    )
    if spec.base == spec.head and not spec.inject:
        for each in found.endpoints:
            say(noise_sentence(each, spec.plan()))
    return _conclude(folder, found)


def _inject(profiles: Path, folder: Path, spec: SessionSpec, run: Evidence) -> SessionSpec:
    """The session with its fault, of a size that `run` gives."""
    injection = injection_of(spec.inject)
    settings = load_profile(spec.profile, profiles, spec.head.overrides, spec.seed).settings
    seconds = seconds_of(injection, run, read_pods(run.folder), settings)
    say(f"{spec.inject}: {1000 * seconds:.3g} ms more for HEAD")
    scheduler = _kube_scheduler(spec.base)
    return injected(spec, injection, seconds, settings, scheduler, folder)


def _kube_scheduler(side: SideSpec) -> Path:
    """The one that runs of this side would have."""
    if (given := side.components.get(KUBE_SCHEDULER)) is not None:
        return Path(given)
    asked = request_from(os.environ, kubernetes_version=side.kubernetes_version or None)
    return resolve(asked, say).kube_scheduler


def _stored(flags: argparse.Namespace) -> ExitCode:
    match flags.results:
        case [folder] if (folder / SESSION).exists():
            return _conclude(folder, played_session(folder, flags.force).compare())
        case [base, head]:
            found = compare_stored(base, head, least_effect_of(flags.least_effect), flags.force)
            return _conclude(_new_folder(flags.out), found)
        case _:
            raise ProfileError(["give two folders of results, or one session"])


def _conclude(folder: Path, found: Comparison) -> ExitCode:
    write_comparison(folder, found)
    for sentence in (*found.warnings, *found.why):
        say(sentence)
    if found.attributed:
        say(f"attributed to {found.attributed}")
    say(f"{found.verdict.upper()}: {folder / PAGE}")
    return ExitCode(found.exit_code)


def played_session(folder: Path, force: bool = False) -> Session:
    """A session that has been played, to be judged."""
    state = read_state(folder)
    return Session(folder, state, ProcessRunner(state.spec, PROFILES), say, force)


def _new_folder(results: Path) -> Path:
    """A folder for a session or a comparison, not made yet."""
    stem = f"compare-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"
    names = [stem, *(f"{stem}-{number}" for number in range(1, 100))]
    free = next((results / name for name in names if not (results / name).exists()), None)
    if free is None:
        raise InfrastructureError(f"{results} already has 100 comparisons of this second")
    return free


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """KeyboardInterrupt on SIGTERM, on SIGINT even behind a shell's `&`, and on the SIGHUP of a
    terminal that is closed, but not under nohup.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
