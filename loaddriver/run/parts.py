"""A whole run: its plan with BigFleet, and after it what it is compared with."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loaddriver.errors import ExitCode, InfrastructureError, ProfileError
from loaddriver.judge.again import judge_again
from loaddriver.judge.schema import Summary
from loaddriver.judge.side_by_side import side_by_side
from loaddriver.profile import Profile
from loaddriver.report.results import BARE, WITHOUT_ANCHORS, write_judgement
from loaddriver.run.folder import point_latest
from loaddriver.run.frame import Ground, measure
from loaddriver.run.host import read_host
from loaddriver.run.pairing import Pair, read_pair
from loaddriver.run.part import Part, with_anchors
from loaddriver.run.prepared import Prepared
from loaddriver.shared_demand import demand_of
from loaddriver.substrates.choice import Supplies

# The gravest first: what kept us from measuring, then what was measured.
_GRAVITY = (
    ExitCode.HARNESS_BUG,
    ExitCode.INTERRUPTED,
    ExitCode.INFRASTRUCTURE,
    ExitCode.INVALID_RUN,
    ExitCode.GATE_MISSED,
    ExitCode.PASS,
)


@dataclass(frozen=True)
class Outcome:
    """`summary` and `folder` are the run's own, `beside` those of what it is compared with.

    `unfinished` names the part that an interruption has left out; `interrupted` says that there was
    one at all, and be it when nothing was left but to judge.
    """

    summary: Summary
    folder: Path
    beside: tuple[tuple[Summary, Path], ...] = ()
    unfinished: str = ""
    interrupted: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """The gravest of all parts."""
        codes = {ExitCode(each.exit_code) for each in self.summaries}
        if self.interrupted:
            codes.add(ExitCode.INTERRUPTED)
        return min(codes, key=_GRAVITY.index)

    @property
    def summaries(self) -> Sequence[Summary]:
        """Of all parts, the run's own first."""
        return (self.summary, *(summary for summary, _ in self.beside))


async def play(ground: Ground, prepared: Prepared, folder: Path) -> Outcome:
    """Run to the verdict, with what the options and the profile want beside it.

    A run that says nothing is compared with nothing. Raises InfrastructureError.
    """
    both = prepared.profile.settings.anchors == "both"
    own = with_anchors(prepared, "on") if both else prepared
    summary, stop_asked = await measure(ground, Part(own, folder, folder.name))
    point_latest(folder)
    outcome = Outcome(summary, folder, interrupted=stop_asked)
    if both and _worth_comparing(summary):
        if outcome.interrupted:
            return replace(outcome, unfinished="the part without anchors")
        outcome = await _without_anchors(ground, prepared, outcome)
    if ground.options.bare and all(_worth_comparing(each) for each in outcome.summaries):
        if outcome.interrupted:
            return replace(outcome, unfinished="the bare part")
        bared = await play_bare(ground, read_pair(folder))
        return replace(bared, beside=(*outcome.beside, *bared.beside))
    return outcome


async def play_bare(ground: Ground, pair: Pair) -> Outcome:
    """Play the pair's plan without BigFleet, and judge the pair. Raises InfrastructureError."""
    part = bare_part(pair)
    _refuse_other_binaries(pair.summary, ground.supplies)
    shutil.rmtree(part.folder, ignore_errors=True)  # an earlier one's
    _make(part.folder)
    ground.view.say(f"the bare part: the same plan on {len(pair.nodes)} nodes, without BigFleet")
    bare, stop_asked = await measure(ground, part)
    judged = judge_again(pair.summary, pair.profile.gates, bare)
    write_judgement(pair.folder, judged)
    return Outcome(judged, pair.folder, ((bare, part.folder),), interrupted=stop_asked)


def bare_part(pair: Pair) -> Part:
    """The part without BigFleet. ProfileError where it would have no meaning."""
    if pair.profile.settings.load.mode != "pods":
        raise ProfileError(
            [f"{pair.folder}: its load makes no pods, so there is nothing to bind without BigFleet"]
        )
    return Part(
        prepared=_as_played(pair.profile, pair),
        folder=pair.folder / BARE,
        run_id=f"{pair.summary.run.id}-{BARE}",
        nodes=pair.nodes,
        bare_of=pair.summary.run.id,
    )


async def _without_anchors(ground: Ground, prepared: Prepared, outcome: Outcome) -> Outcome:
    folder = outcome.folder / WITHOUT_ANCHORS
    part = Part(with_anchors(prepared, "off"), folder, f"{outcome.folder.name}-{WITHOUT_ANCHORS}")
    _make(folder)
    ground.view.say("the same plan once more, without anchors")
    summary, stop_asked = await measure(ground, part)
    on, off = side_by_side(outcome.summary, summary)
    write_judgement(outcome.folder, on)
    write_judgement(folder, off)
    return Outcome(on, outcome.folder, ((off, folder),), interrupted=stop_asked)


def _as_played(profile: Profile, pair: Pair) -> Prepared:
    return Prepared(
        profile=profile,
        plan=pair.plan,
        demand=demand_of(pair.plan, profile.catalog),
        machines=tuple(node.machine for node in pair.nodes),
        host=read_host(pair.folder),
    )


def _worth_comparing(summary: Summary) -> bool:
    return summary.verdict not in ("error", "invalid")


def _refuse_other_binaries(summary: Summary, supplies: Supplies) -> None:
    for name, version in supplies.versions.items():
        then = summary.run.versions.get(name, version)
        if then != version:
            raise InfrastructureError(
                f"{summary.run.id} ran with {name} {then}, here is {version}: a bare run beside it "
                "would compare two releases; name the same with --kubernetes-version or --binaries"
            )


def _make(folder: Path) -> None:
    try:
        (folder / "logs").mkdir(parents=True)
    except OSError as error:
        raise InfrastructureError(f"{error.filename}: {error.strerror}") from None
