"""All chosen scenarios, over a few lanes at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from tests.scenarios.files import Case
from tests.scenarios.lane import Lane, LaneContext, Outcome


class Suite:
    """Plays the cases in their order, several at a time; who waits for one gets its outcome."""

    def __init__(self, context: LaneContext, cases: Sequence[Case], lanes: int) -> None:
        self._context, self._left = context, deque(cases)
        self._lanes = min(lanes, len(cases))
        loop = asyncio.get_running_loop()
        self._outcomes = {case.name: loop.create_future() for case in cases}
        self._started = 0
        self._over = asyncio.Event()

    async def outcome(self, name: str) -> Outcome:
        """How that scenario went, once it has been played."""
        outcome: Outcome = await asyncio.shield(self._outcomes[name])
        return outcome

    async def run(self) -> None:
        """Play all of them; when cancelled, stop what runs."""
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._lanes):
                    workers.create_task(self._work())
        finally:
            self._over.set()

    async def ended(self) -> None:
        """Return once `run` has stopped everything."""
        await self._over.wait()

    async def _work(self) -> None:
        lane: Lane | None = None
        try:
            while self._left:
                case = self._left.popleft()
                try:
                    lane = lane or await self._lane()
                    self._outcomes[case.name].set_result(await lane.play(case))
                except Exception as error:  # noqa: BLE001  it belongs to this one case
                    self._outcomes[case.name].set_exception(error)
                    if lane is not None:
                        lane.usable = False
                if lane is not None and not lane.usable:
                    await lane.stop()
                    lane = None
        finally:
            if lane is not None:
                await lane.stop()

    async def _lane(self) -> Lane:
        self._started += 1
        lane = Lane(self._context, f"lane-{self._started}")
        try:
            await lane.start()
        except BaseException:
            await lane.stop()
            raise
        return lane
