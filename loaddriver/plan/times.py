"""Where a moment of a phase lies in a plan: in which step, and how long after its release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from loaddriver.errors import ProfileError
from loaddriver.plan.records import LoadEvent
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import ProfileSettings

# What one shape sends to one cluster: brisk for a tool, and no rush that makes the sender late.
REQUESTS_PER_SECOND = 25.0


def soak_step(settings: ProfileSettings) -> int:
    """The number of the step that follows the ramp's."""
    return settings.ramp.steps + 1


def step_and_offset(
    settings: ProfileSettings, phase: Literal["ramp", "soak"], seconds: float
) -> tuple[int, float]:
    """Step and offset of the moment `seconds` after the begin of `phase`."""
    if phase == "soak":
        return soak_step(settings), round(seconds, 6)
    before = min(int(seconds / settings.ramp.step_seconds), settings.ramp.steps - 1)
    return 1 + before, round(seconds - before * settings.ramp.step_seconds, 6)


def check_within_phases(profile: Profile, events: Sequence[LoadEvent]) -> None:
    """Raises ProfileError when a request would be due after the end of its phase."""
    settings = profile.settings
    lengths = {soak_step(settings): settings.soak.seconds}
    for event in reversed(events):
        over = event.offset_seconds - lengths.get(event.step, settings.ramp.step_seconds)
        if over > 0:
            raise ProfileError(
                [
                    f"{profile.name}/profile.yaml: {event.id} would be sent {over:.1f} s after the "
                    f"end of its phase: a shape sends {REQUESTS_PER_SECOND:g} requests a second to "
                    "each cluster; begin it earlier, or make the phase longer"
                ]
            )
