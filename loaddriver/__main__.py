"""`loaddriver COMMAND ...`: the command line of the harness. Flags are read here."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from controlplane.errors import BinaryError, BinaryUsageError
from loaddriver.commands import (
    bare,
    calibrate,
    chart,
    compare,
    compare_power,
    doctor,
    gates,
    history,
    load_worker,
    plan,
    runs,
    wire,
)
from loaddriver.commands.common import (
    ended_by_signals,
    get_prerequisites,
    print_verdict,
    print_verdicts,
    run_once,
    say,
)
from loaddriver.commands.flags import (
    at_once_flag,
    bare_flag,
    context_flag,
    keep_flag,
    load_flags,
    profile_flags,
    provider_flags,
    run_options,
    system_flags,
)
from loaddriver.errors import ExitCode, LoaddriverError
from loaddriver.judge.rejudge import rejudge
from loaddriver.profile.gates import load_gates
from loaddriver.report.results import check_unchanged, read_bare, read_summary, write_verdict
from loaddriver.run.arm_runner import hold
from loaddriver.run.background import down, up
from loaddriver.run.context import RunContext
from loaddriver.run.existing_clusters import clean
from loaddriver.run.folder import create
from loaddriver.run.inputs import Arm, prepare_inputs
from loaddriver.run.live_view import view_on
from loaddriver.substrates.existing.contexts import read_contexts
from loaddriver.substrates.runlock import machine_claimed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command given by `arguments`; return the exit code of the process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    flags = build_parser().parse_args(given)
    flags.given = given
    try:
        return int(flags.do(flags))
    except LoaddriverError as error:
        say(str(error))
        return int(error.exit_code)
    except BinaryUsageError as error:
        say(str(error))
        return int(ExitCode.USAGE)
    except BinaryError as error:
        say(str(error))
        return int(ExitCode.INFRASTRUCTURE)
    except OSError as error:
        say(f"{error.filename or 'this machine'}: {error.strerror or error}")
        return int(ExitCode.INFRASTRUCTURE)
    except (KeyboardInterrupt, asyncio.CancelledError):
        say("interrupted; everything is cleaned up")
        return int(ExitCode.INTERRUPTED)
    except Exception as error:  # noqa: BLE001  a bug must not look like a result
        report = Path(tempfile.gettempdir()) / f"loaddriver-bug-{os.getpid()}.txt"
        report.write_text(traceback.format_exc())
        say(f"A bug in the harness: {error!r}; please report it with {report}.")
        return int(ExitCode.HARNESS_BUG)


def _run(flags: argparse.Namespace) -> ExitCode:
    return print_verdicts(run_once(run_options(flags)))


def _hold(flags: argparse.Namespace) -> ExitCode:
    options = run_options(flags)
    inputs = prepare_inputs(options)
    inputs.preflight().raise_errors()
    prerequisites = get_prerequisites(options, inputs.profile.settings)
    with machine_claimed(options.profile) as lock, view_on(sys.stderr) as view:
        folder = create(options.results, f"up-{options.profile}")
        arm = Arm(inputs, folder, folder.name)
        asyncio.run(ended_by_signals(hold(RunContext(options, prerequisites, lock, view), arm)))
    return ExitCode.PASS


def _up(flags: argparse.Namespace) -> ExitCode:
    prepare_inputs(run_options(flags)).preflight().raise_errors()
    up(flags.given[1:], flags.results / "up.log", say)
    return ExitCode.PASS


def _down(flags: argparse.Namespace) -> ExitCode:
    contexts = read_contexts(os.environ, flags.context) if flags.context else []
    holder = down()
    say("nothing is up" if holder is None else f"{holder.profile} is down and cleaned up")
    asyncio.run(clean(contexts, say))
    return ExitCode.PASS


def _preflight(flags: argparse.Namespace) -> ExitCode:
    check = prepare_inputs(run_options(flags)).preflight()
    print("\n".join(check.lines))
    check.raise_errors()
    return ExitCode.PASS


def _judge(flags: argparse.Namespace) -> ExitCode:
    found = read_summary(flags.results)
    say(check_unchanged(flags.results))
    summary = rejudge(found, load_gates(flags.expect), read_bare(flags.results))
    write_verdict(flags.results, summary)
    print_verdict(summary, flags.results)
    return ExitCode(summary.exit_code)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="loaddriver", description="Measure how fast pods bind on real control planes."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a profile and give a verdict")
    profile_flags(run)
    keep_flag(run)
    bare_flag(run)
    system_flags(run)
    provider_flags(run)
    load_flags(run)
    at_once_flag(run)
    run.set_defaults(do=_run)
    for name, do, text in (
        ("up", _up, "start a profile's clusters and BigFleet without load, in the background"),
        ("hold", _hold, "the same in the foreground"),
    ):
        command = commands.add_parser(name, help=text)
        profile_flags(command)
        keep_flag(command)
        provider_flags(command)
        command.set_defaults(do=do)
    end = commands.add_parser("down", help="stop what is up, and clean existing clusters")
    context_flag(end)
    end.set_defaults(do=_down)
    check = commands.add_parser("preflight", help="print what a profile needs; start nothing")
    profile_flags(check)
    keep_flag(check)
    provider_flags(check)
    check.set_defaults(do=_preflight)
    judge = commands.add_parser("judge", help="judge a finished run by other limits")
    judge.add_argument("results", type=Path, help="the results folder of a run")
    judge.add_argument("--expect", type=Path, required=True, help="a file like expect.yaml")
    judge.set_defaults(do=_judge)
    others = (
        *(bare, calibrate, chart, compare, compare_power, doctor, gates, history),
        *(load_worker, plan, runs, wire),
    )
    for command_of in others:
        command_of.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
