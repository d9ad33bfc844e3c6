"""Converts times in a phase to a step and an offset after its release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from loaddriver.errors import ProfileError
from loaddriver.plan.records import LoadEvent
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import ProfileSettings

# The rate of a burst or demand step per cluster; a higher one could make the sender late.
REQUESTS_PER_SECOND = 25.0


def soak_step(settings: ProfileSettings) -> int:
    """The number of the soak's step, after those of the ramp."""
    return settings.ramp.steps + 1


def step_and_offset(
    settings: ProfileSettings, phase: Literal["ramp", "soak"], seconds: float
) -> tuple[int, float]:
    """The step and offset of the time `seconds` into `phase`."""
    if phase == "soak":
        return soak_step(settings), round(seconds, 6)
    before = min(int(seconds / settings.ramp.step_seconds), settings.ramp.steps - 1)
    return 1 + before, round(seconds - before * settings.ramp.step_seconds, 6)


def check_within_phases(profile: Profile, events: Sequence[LoadEvent]) -> None:
    """Raise ProfileError if a request would be due after the end of its phase."""
    settings = profile.settings
    lengths = {soak_step(settings): settings.soak.seconds}
    for event in reversed(events):
        over = event.offset_seconds - lengths.get(event.step, settings.ramp.step_seconds)
        if over > 0:
            raise ProfileError(
                [
                    f"{profile.name}/profile.yaml: {event.id} would be sent {over:.1f} s after the "
                    f"end of its phase: bursts and demand steps send {REQUESTS_PER_SECOND:g} "
                    "requests per second to each cluster; start earlier or extend the phase"
                ]
            )
