"""Plays ramp and soak: releases the steps of the plan and waits for their effect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from loaddriver.errors import LoadTimeoutError
from loaddriver.judge.percentiles import lower_bound, some_quantiles
from loaddriver.load.files import StepReleased
from loaddriver.load.process import RELEASE_NOTICE_SECONDS, LoadProcess
from loaddriver.plan.records import SETUP_STEP, Plan, Step
from loaddriver.profile.settings import Ramp, Soak
from loaddriver.record.live_counts import all_waits
from loaddriver.record.watching import now_micros
from loaddriver.run.knee import Knee, StepTrial, find_knee, overload_reason
from loaddriver.run.ramp_pacing import (
    OpenPacing,
    RampAction,
    RampDecision,
    RampState,
    Released,
    following_stretch,
    next_action,
    open_pacing,
    shown_pods_per_second,
)
from loaddriver.run.recorders import ClusterRecorders

_POLL_INTERVAL_SECONDS = 0.5
_P99_INTERVAL_SECONDS = 2.0
# Longer than the time from a deletion to the replacement's line in the audit log.
_QUIET_PERIOD_SECONDS = 2.0
_SETUP_TIMEOUT_SECONDS = 60.0
_SEND_SLACK_SECONDS = 60.0


@dataclass
class RunProgress:
    """The progress of the load, read by the live view and the summary.

    `failures` are sentences about failures of the system under test; `unsent` says that a part of
    the load was not sent, whoever is to blame. `breaches` are the ramp steps that exceeded the
    ramp's limits; `shown_pods_per_second` is the rate of which an open stage takes a share.
    `pods_asked` counts the pods of the steps released so far; a knee run ends with its `knee`,
    before all planned pods are released.
    """

    phase: str = "starting"
    detail: str = ""
    steps_released: int = 0
    pods_asked: int = 0
    ramp_started_micros: int | None = None
    open_stage_started_micros: int | None = None
    shown_pods_per_second: float | None = None
    soak_started_micros: int | None = None
    soak_ends_at: float | None = None
    soak_begun: asyncio.Event = field(default_factory=asyncio.Event)
    breaches: set[int] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    unsent: str = ""
    knee: Knee | None = None


class LoadPhases:
    """Plays one plan, updating `run_progress`; `on_progress` is called at each poll."""

    def __init__(
        self,
        plan: Plan,
        ramp: Ramp,
        soak: Soak,
        load: LoadProcess,
        recorders: ClusterRecorders,
        on_progress: Callable[[], None],
    ) -> None:
        self._plan, self._ramp, self._soak = plan, ramp, soak
        self._load, self._recorders, self._on_progress = load, recorders, on_progress
        self._ramp_started = 0.0
        self._released_at = 0.0
        self._soak_due_at: float | None = None
        self._trial: StepTrial | None = None
        self._p99, self._p99_at, self._p99_step = 0.0, 0.0, ""
        self._overloads: dict[int, str] = {}
        self._open_stage: OpenPacing | None = None
        self._released: list[Released] = []
        self._asked: dict[tuple[int, str], int] = {}
        self.run_progress = RunProgress()

    async def play(self) -> None:
        """Play set-up, ramp, soak and settling. Raises LoadProcessError if the load fails."""
        self.run_progress.phase = "set-up"
        self._load.release(StepReleased(step=SETUP_STEP, at=time.time()))
        await self._load.wait_for_step(SETUP_STEP, _SETUP_TIMEOUT_SECONDS)
        if await self._ramp_up():
            await self._run_soak()
            await self._settle()
        self.run_progress.phase = "finishing"

    async def _ramp_up(self) -> bool:
        """Release the ramp's steps; return whether the soak follows."""
        self.run_progress.phase = "ramp"
        self._ramp_started = time.time() + RELEASE_NOTICE_SECONDS
        self.run_progress.ramp_started_micros = round(self._ramp_started * 1e6)
        while True:
            view = self._view()
            decision = next_action(self._ramp, view, time.time())
            self.run_progress.detail = decision.reason
            if decision.breach:
                self.run_progress.breaches.add(view.steps_released)
            if decision.action is RampAction.RELEASE:
                self._release(self._plan.steps[view.steps_released + 1], decision.due_at)
            elif decision.action is RampAction.GIVE_UP:
                self.run_progress.failures.append(f"The ramp did not finish: {decision.reason}.")
                return False
            elif decision.action is not RampAction.WAIT:
                self._soak_due_at = decision.due_at
                if self._ramp.pacing == "knee":
                    self._note_knee(decision)
                    await self._drain()
                return self.run_progress.knee is None
            await self._poll()

    def _note_knee(self, decision: RampDecision) -> None:
        played = self._plan.steps[1 : self.run_progress.steps_released + 1]
        if decision.action is RampAction.BROKEN:
            self._overloads.setdefault(played[-1].number, decision.reason)
        self.run_progress.knee = find_knee(played, self._overloads, self._bound())

    async def _drain(self) -> None:
        """Wait until all released pods are bound or the budget is spent, instead of a soak."""
        self.run_progress.phase = "draining"
        while self._unbound_pods() and time.time() < self._ramp_started + self._ramp.budget_seconds:
            self.run_progress.detail = f"{self._unbound_pods()} pods waiting"
            await self._poll()

    async def _run_soak(self) -> None:
        """Release the soak and wait for its full length."""
        soak = self._plan.steps[-1]
        self.run_progress.phase, self.run_progress.detail = "soak", ""
        self._release(soak, self._soak_due_at)
        self.run_progress.soak_started_micros = round(self._released_at * 1e6)
        self.run_progress.soak_ends_at = self._released_at + self._soak.seconds
        self.run_progress.soak_begun.set()
        while time.time() < self.run_progress.soak_ends_at:
            await self._poll()
        try:
            await self._load.wait_for_step(soak.number, _SEND_SLACK_SECONDS)
        except LoadTimeoutError:
            within = f"{_SEND_SLACK_SECONDS:g} s of its end"
            self.run_progress.unsent = f"The soak's requests were not all sent within {within}."

    async def _settle(self) -> None:
        """Give the last pods of the soak as long to bind as a ramp step may take."""
        self.run_progress.phase = "settling"
        now = time.time()
        deadline, quiet_since = now + self._ramp.max_step_p99_seconds, now
        while now < deadline and now - quiet_since < _QUIET_PERIOD_SECONDS:
            self.run_progress.detail = f"{self._backlog()} pods waiting"
            await self._poll()
            now = time.time()
            if self._backlog():
                quiet_since = now

    def _release(self, step: Step, due_at: float | None) -> None:
        self._released_at = due_at or time.time() + RELEASE_NOTICE_SECONDS
        if step.phase == "ramp" and step.number == self._ramp.held_steps + 1:
            self._begin_open_stage(step)
        stretch = self._stretch(step)
        release = StepReleased(step=step.number, at=self._released_at, stretch=stretch)
        self._load.release(release)
        self._announce(release)
        if step.phase == "ramp":
            self._released.append(Released(self._released_at, self._bound(), step.pods, stretch))
            self.run_progress.steps_released = step.number
            self.run_progress.pods_asked += step.pods
            if self._ramp.pacing == "knee":
                self._trial = StepTrial(self._plan, step, self._released_at)

    def _stretch(self, step: Step) -> float:
        """The factor by which a step is longer than planned."""
        if step.phase != "ramp":
            return 1.0
        if self._open_stage is not None:
            return self._open_stage.stretch
        return following_stretch(self._ramp, step, self._released, self._released_at, self._bound())

    def _begin_open_stage(self, step: Step) -> None:
        shown = shown_pods_per_second(self._released, time.time(), self._bound())
        self._open_stage = open_pacing(self._ramp, step, shown, self._released_at)
        self.run_progress.open_stage_started_micros = round(self._released_at * 1e6)
        self.run_progress.shown_pods_per_second = shown

    def _announce(self, release: StepReleased) -> None:
        """Tell the counts what is due from when on; in `cr` mode they count from creations."""
        for level in self._plan.levels:
            if level.step != release.step:
                continue
            key = level.cluster, level.workload
            added = level.replicas - self._asked.get(key, 0)
            self._asked[key] = level.replicas
            if added > 0:
                due_micros = release.due_micros(level.offset_seconds)
                counts = self._recorders.live_counts_by_cluster[level.cluster]
                counts.ask(level.workload, due_micros, added)

    def _view(self) -> RampState:
        number = self.run_progress.steps_released
        step = self._plan.steps[number]
        p99, bound = self._p99_of(str(number)), self._bound()
        return RampState(
            started_at=self._ramp_started,
            steps_released=number,
            last_released_at=self._released_at,
            last_step_sent=self._load.step_finished(number),
            last_step_pods=step.pods,
            last_step_bound=sum(
                t.bound_of(str(number)) for t in self._recorders.live_counts_by_cluster
            ),
            last_step_p99_seconds=p99,
            backlog_pods=self._unbound_pods(),
            stuck_pods=self._stuck(),
            last_step_overload=self._overload(step, bound, p99),
            previous_step_overload=self._overloads.get(number - 1, ""),
            last_stretch=self._released[-1].stretch if self._released else 1.0,
            open_pacing=self._open_stage,
        )

    def _p99_of(self, step: str) -> float:
        """The p99 of the step's waits so far; computed rarely, as it reads every wait."""
        if step != self._p99_step or time.monotonic() - self._p99_at >= _P99_INTERVAL_SECONDS:
            self._p99_step, self._p99_at = step, time.monotonic()
            waits = all_waits(self._recorders.live_counts_by_cluster, now_micros(), step)
            [p99] = some_quantiles(waits.bound, waits.unbound, 0.99)
            self._p99 = lower_bound(p99) or 0.0
        return self._p99

    def _overload(self, step: Step, bound: int, p99_seconds: float) -> str | None:
        """Why the step of a knee run is overloaded ("" if it is not); None while unknown."""
        if self._trial is None:
            return None
        self._trial.observe(time.time(), bound)
        if self._trial.growth_pods is None:
            return None
        found = overload_reason(self._ramp, step, self._trial.growth_pods, p99_seconds)
        if found:
            self._overloads[step.number] = found
        return found

    def _bound(self) -> int:
        return sum(
            live_counts.bound_total for live_counts in self._recorders.live_counts_by_cluster
        )

    def _unbound_pods(self) -> int:
        """The backlog, including pods that their controllers have not created yet."""
        return max(self._backlog(), self.run_progress.pods_asked - self._bound())

    def _stuck(self) -> int:
        since = now_micros() - int(2e6 * self._ramp.max_step_p99_seconds)
        return sum(
            live_counts.waiting_since_before(since)
            for live_counts in self._recorders.live_counts_by_cluster
        )

    def _backlog(self) -> int:
        return sum(live_counts.backlog for live_counts in self._recorders.live_counts_by_cluster)

    async def _poll(self) -> None:
        self._on_progress()
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)
