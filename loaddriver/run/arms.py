"""A whole run: its plan with BigFleet, and after it what it is compared with."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loaddriver.errors import ExitCode, InfrastructureError, ProfileError
from loaddriver.judge.rejudge import rejudge
from loaddriver.judge.schema import Summary
from loaddriver.judge.side_by_side import side_by_side
from loaddriver.profile.loading import Profile
from loaddriver.report.results import BARE, WITHOUT_ANCHORS, write_verdict
from loaddriver.run.arm_runner import RunContext, measure
from loaddriver.run.folder import point_latest
from loaddriver.run.host import read_host
from loaddriver.run.inputs import Arm, RunInputs, with_anchors
from loaddriver.run.paired_run import PairedRun, read_paired_run
from loaddriver.sizing.shared_demand import compute_demand
from loaddriver.substrates.choice import Prerequisites

# The gravest first: what kept us from measuring, then what was measured.
_SEVERITY = (
    ExitCode.HARNESS_BUG,
    ExitCode.INTERRUPTED,
    ExitCode.INFRASTRUCTURE,
    ExitCode.INVALID_RUN,
    ExitCode.GATE_MISSED,
    ExitCode.PASS,
)


@dataclass(frozen=True)
class RunOutcome:
    """`summary` and `folder` are the run's own, `comparisons` those of what it is compared with.

    `skipped_arm` names the part that an interruption has left out; `interrupted` says that there
    was one at all, and be it when nothing was left but to judge.
    """

    summary: Summary
    folder: Path
    comparisons: tuple[tuple[Summary, Path], ...] = ()
    skipped_arm: str = ""
    interrupted: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """The gravest of all parts."""
        codes = {ExitCode(each.exit_code) for each in self.summaries}
        if self.interrupted:
            codes.add(ExitCode.INTERRUPTED)
        return min(codes, key=_SEVERITY.index)

    @property
    def summaries(self) -> Sequence[Summary]:
        """Of all parts, the run's own first."""
        return (self.summary, *(summary for summary, _ in self.comparisons))


async def run_arms(context: RunContext, inputs: RunInputs, folder: Path) -> RunOutcome:
    """Run to the verdict, with what the options and the profile want beside it.

    A run that says nothing is compared with nothing. Raises InfrastructureError.
    """
    both = inputs.profile.settings.anchors == "both"
    own = with_anchors(inputs, "on") if both else inputs
    summary, stop_requested = await measure(context, Arm(own, folder, folder.name))
    point_latest(folder)
    outcome = RunOutcome(summary, folder, interrupted=stop_requested)
    if both and _comparable(summary):
        if outcome.interrupted:
            return replace(outcome, skipped_arm="the arm without anchors")
        outcome = await _without_anchors(context, inputs, outcome)
    if context.options.bare and all(_comparable(each) for each in outcome.summaries):
        if outcome.interrupted:
            return replace(outcome, skipped_arm="the bare arm")
        bared = await run_bare_arm(context, read_paired_run(folder))
        return replace(bared, comparisons=(*outcome.comparisons, *bared.comparisons))
    return outcome


async def run_bare_arm(context: RunContext, pair: PairedRun) -> RunOutcome:
    """Play the pair's plan without BigFleet, and judge the pair. Raises InfrastructureError."""
    arm = bare_arm(pair)
    _check_same_binaries(pair.summary, context.prerequisites)
    shutil.rmtree(arm.folder, ignore_errors=True)  # an earlier one's
    _make_folder(arm.folder)
    context.view.say(f"the bare arm: the same plan on {len(pair.nodes)} nodes, without BigFleet")
    bare, stop_requested = await measure(context, arm)
    judged = rejudge(pair.summary, pair.profile.gates, bare)
    write_verdict(pair.folder, judged)
    return RunOutcome(judged, pair.folder, ((bare, arm.folder),), interrupted=stop_requested)


def bare_arm(pair: PairedRun) -> Arm:
    """The part without BigFleet. ProfileError where it would have no meaning."""
    if pair.profile.settings.load.mode != "pods":
        raise ProfileError(
            [f"{pair.folder}: its load makes no pods, so there is nothing to bind without BigFleet"]
        )
    return Arm(
        inputs=_inputs_of(pair.profile, pair),
        folder=pair.folder / BARE,
        run_id=f"{pair.summary.run.id}-{BARE}",
        nodes=pair.nodes,
        bare_of=pair.summary.run.id,
    )


async def _without_anchors(
    context: RunContext, inputs: RunInputs, outcome: RunOutcome
) -> RunOutcome:
    folder = outcome.folder / WITHOUT_ANCHORS
    arm = Arm(with_anchors(inputs, "off"), folder, f"{outcome.folder.name}-{WITHOUT_ANCHORS}")
    _make_folder(folder)
    context.view.say("the same plan once more, without anchors")
    summary, stop_requested = await measure(context, arm)
    on, off = side_by_side(outcome.summary, summary)
    write_verdict(outcome.folder, on)
    write_verdict(folder, off)
    return RunOutcome(on, outcome.folder, ((off, folder),), interrupted=stop_requested)


def _inputs_of(profile: Profile, pair: PairedRun) -> RunInputs:
    return RunInputs(
        profile=profile,
        plan=pair.plan,
        demand=compute_demand(pair.plan, profile.catalog),
        machines=tuple(node.machine for node in pair.nodes),
        host=read_host(pair.folder),
    )


def _comparable(summary: Summary) -> bool:
    return summary.verdict not in ("error", "invalid")


def _check_same_binaries(summary: Summary, prerequisites: Prerequisites) -> None:
    for name, version in prerequisites.versions.items():
        then = summary.run.versions.get(name, version)
        if then != version:
            raise InfrastructureError(
                f"{summary.run.id} ran with {name} {then}, here is {version}: a bare run beside it "
                "would compare two releases; name the same with --kubernetes-version or --binaries"
            )


def _make_folder(folder: Path) -> None:
    try:
        (folder / "logs").mkdir(parents=True)
    except OSError as error:
        raise InfrastructureError(f"{error.filename}: {error.strerror}") from None
