"""Ramp and soak: releases the load step by step and waits for what it does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from loaddriver.judge.percentiles import least, some_quantiles
from loaddriver.load import RELEASE_NOTICE_SECONDS, LoadProcess
from loaddriver.plan_records import SETUP_STEP, Plan, Step
from loaddriver.profile import Ramp, Soak
from loaddriver.record.tally import all_waits
from loaddriver.record.watching import now_micros
from loaddriver.run.knee import Knee, Trial, find_knee, trouble
from loaddriver.run.ramp import Move, RampView, Verdict, next_move
from loaddriver.run.watchers import Watchers

_LOOK_SECONDS = 0.5
_P99_SECONDS = 2.0
# Longer than the time from a deletion to its replacement's line in the audit log.
_QUIET_SECONDS = 2.0
_SETUP_SECONDS = 60.0
_SEND_SLACK_SECONDS = 60.0


@dataclass
class Course:
    """How the load went so far; the live view and the summary read it.

    `failures` are sentences that blame the system under test. `breaches` are the ramp's steps that
    bound more slowly than the ramp allows. `pods_asked` counts the pods of the steps released so
    far; a knee run, which ends with its `knee`, asks for less than its plan holds.
    """

    phase: str = "starting"
    detail: str = ""
    steps_released: int = 0
    pods_asked: int = 0
    soak_started_micros: int | None = None
    soak_ends_at: float | None = None
    soak_begun: asyncio.Event = field(default_factory=asyncio.Event)
    breaches: set[int] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    knee: Knee | None = None


class Phases:
    """Plays one plan. `course` is updated as it goes; `changed` is called after each look."""

    def __init__(
        self,
        plan: Plan,
        ramp: Ramp,
        soak: Soak,
        load: LoadProcess,
        watchers: Watchers,
        changed: Callable[[], None],
    ) -> None:
        self._plan, self._ramp, self._soak = plan, ramp, soak
        self._load, self._watchers, self._changed = load, watchers, changed
        self._ramp_started = 0.0
        self._released_at = 0.0
        self._soak_due_at: float | None = None
        self._trial: Trial | None = None
        self._p99, self._p99_at, self._p99_step = 0.0, 0.0, ""
        self._troubles: dict[int, str] = {}
        self.course = Course()

    async def play(self) -> None:
        """Set up, ramp, soak, settle. Raises LoadProcessError when the load cannot be played."""
        self.course.phase = "set-up"
        self._load.release(SETUP_STEP, time.time())
        await self._load.wait_for_step(SETUP_STEP, _SETUP_SECONDS)
        if await self._climb():
            await self._hold_load()
            await self._settle()
        self.course.phase = "finishing"

    async def _climb(self) -> bool:
        """Release the ramp's steps; whether the soak should follow."""
        self.course.phase = "ramp"
        self._ramp_started = time.time() + RELEASE_NOTICE_SECONDS
        while True:
            view = self._view()
            verdict = next_move(self._ramp, view, time.time())
            self.course.detail = verdict.reason
            if verdict.breach:
                self.course.breaches.add(view.steps_released)
            if verdict.move is Move.RELEASE:
                self._release(self._plan.steps[view.steps_released + 1], verdict.due_at)
            elif verdict.move is Move.GIVE_UP:
                self.course.failures.append(f"The ramp did not get through: {verdict.reason}.")
                return False
            elif verdict.move is not Move.WAIT:
                self._soak_due_at = verdict.due_at
                if self._ramp.gate == "knee":
                    self._note_knee(verdict)
                    await self._drain()
                return self.course.knee is None
            await self._look()

    def _note_knee(self, verdict: Verdict) -> None:
        played = self._plan.steps[1 : self.course.steps_released + 1]
        if verdict.move is Move.BROKEN:
            self._troubles.setdefault(played[-1].number, verdict.reason)
        self.course.knee = find_knee(played, self._troubles, self._bound())

    async def _drain(self) -> None:
        """A knee run has no soak: it ends when all that it asked for is there and bound, if that
        happens within its budget.
        """
        self.course.phase = "draining"
        while self._waiting() and time.time() < self._ramp_started + self._ramp.budget_seconds:
            self.course.detail = f"{self._waiting()} pods wait"
            await self._look()

    async def _hold_load(self) -> None:
        """The soak: churn is played for its whole length, whatever happens."""
        soak = self._plan.steps[-1]
        self.course.phase, self.course.detail = "soak", ""
        self._release(soak, self._soak_due_at)
        self.course.soak_started_micros = round(self._released_at * 1e6)
        self.course.soak_ends_at = self._released_at + self._soak.seconds
        self.course.soak_begun.set()
        while time.time() < self.course.soak_ends_at:
            await self._look()
        await self._load.wait_for_step(soak.number, _SEND_SLACK_SECONDS)

    async def _settle(self) -> None:
        """Pods made in the soak's last moments get as long to bind as a step may take."""
        self.course.phase = "settling"
        now = time.time()
        deadline, quiet_since = now + self._ramp.max_step_p99_seconds, now
        while now < deadline and now - quiet_since < _QUIET_SECONDS:
            self.course.detail = f"{self._backlog()} pods wait"
            await self._look()
            now = time.time()
            if self._backlog():
                quiet_since = now

    def _release(self, step: Step, due_at: float | None) -> None:
        self._released_at = due_at or time.time() + RELEASE_NOTICE_SECONDS
        self._load.release(step.number, self._released_at)
        if step.phase == "ramp":
            self.course.steps_released = step.number
            self.course.pods_asked += step.pods
            if self._ramp.gate == "knee":
                self._trial = Trial(self._plan, step, self._released_at)

    def _view(self) -> RampView:
        number = self.course.steps_released
        step = self._plan.steps[number]
        p99, bound = self._p99_of(str(number)), self._bound()
        return RampView(
            started_at=self._ramp_started,
            steps_released=number,
            last_released_at=self._released_at,
            last_step_sent=self._load.step_finished(number),
            last_step_pods=step.pods,
            last_step_bound=sum(t.bound_of(str(number)) for t in self._watchers.tallies),
            last_step_p99_seconds=p99,
            backlog_pods=self._waiting(),
            stuck_pods=self._stuck(),
            last_step_trouble=self._trouble(step, bound, p99),
            step_before_trouble=self._troubles.get(number - 1, ""),
        )

    def _p99_of(self, step: str) -> float:
        """Of all the step's waits so far; every one of them is looked at, so not at each look."""
        if step != self._p99_step or time.monotonic() - self._p99_at >= _P99_SECONDS:
            self._p99_step, self._p99_at = step, time.monotonic()
            waits = all_waits(self._watchers.tallies, now_micros(), step)
            [p99] = some_quantiles(waits.bound, waits.unbound, 0.99)
            self._p99 = least(p99) or 0.0
        return self._p99

    def _trouble(self, step: Step, bound: int, p99_seconds: float) -> str | None:
        """What is wrong with the step of a knee run; None while that cannot be said."""
        if self._trial is None:
            return None
        self._trial.look(time.time(), bound)
        if self._trial.growth_pods is None:
            return None
        found = trouble(self._ramp, step, self._trial.growth_pods, p99_seconds)
        if found:
            self._troubles[step.number] = found
        return found

    def _bound(self) -> int:
        return sum(tally.bound_total for tally in self._watchers.tallies)

    def _waiting(self) -> int:
        """Pods that no controller has made yet wait as well."""
        return max(self._backlog(), self.course.pods_asked - self._bound())

    def _stuck(self) -> int:
        since = now_micros() - int(2e6 * self._ramp.max_step_p99_seconds)
        return sum(tally.waiting_since_before(since) for tally in self._watchers.tallies)

    def _backlog(self) -> int:
        return sum(tally.backlog for tally in self._watchers.tallies)

    async def _look(self) -> None:
        self._changed()
        await asyncio.sleep(_LOOK_SECONDS)
