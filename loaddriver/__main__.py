"""`loaddriver COMMAND ...`: the harness on the command line. Flags are read here."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from controlplane.errors import BinaryError, RequestError
from controlplane.request import Binaries, request_from
from controlplane.resolve import resolve
from loaddriver.errors import ExitCode, LoaddriverError
from loaddriver.judge.again import judge_again
from loaddriver.judge.schema import Summary
from loaddriver.live import view_on
from loaddriver.profile import load_gates
from loaddriver.report.results import read_summary, write_judgement
from loaddriver.run.background import down, up
from loaddriver.run.folder import create, prune
from loaddriver.run.frame import hold, measure
from loaddriver.run.options import RunOptions
from loaddriver.run.prepared import prepare
from loaddriver.substrates.choice import SubstrateName

T = TypeVar("T")

_ROOT = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what `arguments` ask; the process's exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    flags = _parser().parse_args(given)
    flags.given = given
    try:
        return int(flags.do(flags))
    except LoaddriverError as error:
        _say(str(error))
        return int(error.exit_code)
    except RequestError as error:
        _say(str(error))
        return int(ExitCode.USAGE)
    except BinaryError as error:
        _say(str(error))
        return int(ExitCode.INFRASTRUCTURE)
    except OSError as error:
        _say(f"{error.filename or 'this machine'}: {error.strerror or error}")
        return int(ExitCode.INFRASTRUCTURE)
    except (KeyboardInterrupt, asyncio.CancelledError):
        _say("interrupted")
        return int(ExitCode.INTERRUPTED)


def _run(flags: argparse.Namespace) -> ExitCode:
    options = _options(flags)
    prepared = prepare(options)
    for line in prepared.preflight.lines:
        _say(line)
    prepared.preflight.raise_refusals()
    binaries = _binaries(options)
    folder = create(options.results, options.profile)
    with view_on(sys.stderr) as view:
        work = measure(options, prepared, binaries, folder, view)
        summary = asyncio.run(_ended_by_signals(work))
    for name in prune(options.results):
        _say(f"removed the results of {name}, more than 20 runs ago")
    _conclude(summary, folder)
    return ExitCode(summary.exit_code)


async def _ended_by_signals(work: Coroutine[Any, Any, T]) -> T:
    """SIGTERM ends a run as Ctrl-C does; so does SIGINT where a script's `&` made us ignore it."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await work


def _hold(flags: argparse.Namespace) -> ExitCode:
    options = _options(flags)
    prepared = prepare(options)
    prepared.preflight.raise_refusals()
    binaries = _binaries(options)
    folder = create(options.results, f"up-{options.profile}")
    with view_on(sys.stderr) as view:
        asyncio.run(_ended_by_signals(hold(options, prepared, binaries, folder, view)))
    return ExitCode.PASS


def _up(flags: argparse.Namespace) -> ExitCode:
    prepare(_options(flags)).preflight.raise_refusals()
    up(flags.given[1:], flags.results / "up.log", _say)
    return ExitCode.PASS


def _down(_: argparse.Namespace) -> ExitCode:
    holder = down()
    _say("nothing is up" if holder is None else f"{holder.profile} is down, nothing is left")
    return ExitCode.PASS


def _preflight(flags: argparse.Namespace) -> ExitCode:
    prepared = prepare(_options(flags))
    print("\n".join(prepared.preflight.lines))
    prepared.preflight.raise_refusals()
    return ExitCode.PASS


def _judge(flags: argparse.Namespace) -> ExitCode:
    summary = judge_again(read_summary(flags.results), load_gates(flags.expect))
    write_judgement(flags.results, summary)
    _conclude(summary, flags.results)
    return ExitCode(summary.exit_code)


def _binaries(options: RunOptions) -> Binaries:
    request = request_from(
        options.environment,
        binaries=options.binaries,
        kubernetes_version=options.kubernetes_version,
    )
    return resolve(request, _say)


def _conclude(summary: Summary, folder: Path) -> None:
    for sentence in summary.why:
        _say(sentence)
    _say(f"{summary.verdict.upper()} {summary.run.id}: {folder / 'report.html'}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options(flags: argparse.Namespace) -> RunOptions:
    return RunOptions(
        profile=flags.profile,
        profiles=flags.profiles,
        results=flags.results,
        environment=dict(os.environ),
        substrate=flags.substrate,
        seed=flags.seed,
        overrides=tuple(flags.set),
        kubernetes_version=flags.kubernetes_version,
        binaries=flags.binaries,
        keep=flags.keep,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="loaddriver", description="Measures how fast pods bind on real control planes."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a profile and give a verdict")
    _profile_flags(run)
    run.set_defaults(do=_run)
    for name, do, text in (
        ("up", _up, "start a profile's clusters and BigFleet without load, in the background"),
        ("hold", _hold, "the same in the foreground"),
    ):
        command = commands.add_parser(name, help=text)
        _profile_flags(command)
        command.set_defaults(do=do)
    commands.add_parser("down", help="end what is up").set_defaults(do=_down)
    check = commands.add_parser("preflight", help="say what a profile needs; start nothing")
    _profile_flags(check)
    check.set_defaults(do=_preflight)
    judge = commands.add_parser("judge", help="judge a finished run by other limits")
    judge.add_argument("results", type=Path, help="the folder of a run")
    judge.add_argument("--expect", type=Path, required=True, help="a file like expect.yaml")
    judge.set_defaults(do=_judge)
    return parser


def _profile_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("profile", help="a folder below --profiles")
    command.add_argument("--profiles", type=Path, default=_ROOT / "profiles", metavar="DIR")
    command.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    command.add_argument(
        "--substrate", type=SubstrateName, choices=list(SubstrateName), default=SubstrateName.LOCAL
    )
    command.add_argument("--seed", type=int, help="instead of the profile's")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. soak.seconds=30"
    )
    command.add_argument("--kubernetes-version", metavar="1.X.Y")
    command.add_argument("--binaries", metavar="DIR", help="where kube-apiserver etc. may be")
    command.add_argument("--keep", action="store_true", help="leave everything up at the end")


if __name__ == "__main__":
    sys.exit(main())
