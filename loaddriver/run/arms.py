"""A whole run: the arm with BigFleet, then the arms that it is compared with."""

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
from loaddriver.run.arm_runner import measure
from loaddriver.run.context import RunContext
from loaddriver.run.folder import point_latest
from loaddriver.run.host import read_host
from loaddriver.run.inputs import Arm, RunInputs, with_anchors
from loaddriver.run.paired_run import PairedRun, read_paired_run
from loaddriver.run.provenance import binary_digests
from loaddriver.sizing.shared_demand import compute_demand
from loaddriver.substrates.choice import Prerequisites

# Most severe first: what prevented the measurement, then what was measured.
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
    """The summary and folder of the run, and in `comparisons` those of the other arms.

    `skipped_arm` names the arm that an interruption prevented; `interrupted` is set even if only
    judging remained.
    """

    summary: Summary
    folder: Path
    comparisons: tuple[tuple[Summary, Path], ...] = ()
    skipped_arm: str = ""
    interrupted: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """The most severe exit code of all arms."""
        codes = {ExitCode(each.exit_code) for each in self.summaries}
        if self.interrupted:
            codes.add(ExitCode.INTERRUPTED)
        return min(codes, key=_SEVERITY.index)

    @property
    def summaries(self) -> Sequence[Summary]:
        """The summaries of all arms, the run's own first."""
        return (self.summary, *(summary for summary, _ in self.comparisons))


async def run_arms(context: RunContext, inputs: RunInputs, folder: Path) -> RunOutcome:
    """Run to the verdict, with the further arms that the options and the profile request.

    A run without a valid result is not compared. Raises InfrastructureError.
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
    """Play the plan without BigFleet and judge the pair. Raises InfrastructureError."""
    arm = bare_arm(pair)
    check_same_binaries(pair.summary, context.prerequisites)
    shutil.rmtree(arm.folder, ignore_errors=True)  # of an earlier bare run
    _make_folder(arm.folder)
    context.view.say(f"bare arm: the same plan on {len(pair.nodes)} nodes, without BigFleet")
    bare, stop_requested = await measure(context, arm)
    judged = rejudge(pair.summary, pair.profile.gates, bare)
    write_verdict(pair.folder, judged)
    return RunOutcome(judged, pair.folder, ((bare, arm.folder),), interrupted=stop_requested)


def bare_arm(pair: PairedRun) -> Arm:
    """The arm without BigFleet. Raises ProfileError if the load creates no pods."""
    if pair.profile.settings.load.mode != "pods":
        raise ProfileError(
            [f"{pair.folder}: its load creates no pods, so a bare run has nothing to measure"]
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
    context.view.say("second arm: the same plan without anchors")
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


def check_same_binaries(summary: Summary, prerequisites: Prerequisites) -> None:
    """InfrastructureError if the run had another version or build of one."""
    for name, version in prerequisites.versions.items():
        then = summary.run.versions.get(name, version)
        if then != version:
            raise InfrastructureError(
                f"{summary.run.id} ran with {name} {then}, this machine has {version}; select the "
                "same version with --kubernetes-version or --binaries"
            )
    builds = summary.provenance.binaries if summary.provenance else {}
    for name, build in binary_digests(prerequisites).items():
        if builds.get(name, build) != build:
            raise InfrastructureError(
                f"{summary.run.id} ran with another build of {name}; name it with --component "
                f"{name}=PATH or --binaries"
            )


def _make_folder(folder: Path) -> None:
    try:
        (folder / "logs").mkdir(parents=True)
    except OSError as error:
        raise InfrastructureError(f"{error.filename}: {error.strerror}") from None
