"""The needs that gangs fold into, kept for as long as the same gangs fold."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from bigfleet.engine.snapshot import Longs
from bigfleet.model.group import FoldedGangs, Group
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Need, Operator, Profile, Requirement, profile, sizes_of


class FoldedNeeds:
    """Folded needs by their contents: a need that has not changed stays the same object, so that it
    is not read again.
    """

    def __init__(self) -> None:
        self._profiles: dict[int, tuple[Profile, Group]] = {}
        self._last: dict[Hashable, Need] = {}
        self._used: dict[Hashable, Need] = {}

    def profile(self, number: int, gang_profile: Profile) -> tuple[Profile, Group]:
        """Profile and group of the need that gangs with profile `number` become."""
        if number not in self._profiles:
            group = FoldedGangs(str(gang_profile.same_key))
            self._profiles[number] = _without_same(gang_profile), group
        return self._profiles[number]

    def need(
        self,
        constraints: Profile,
        group: Group,
        priority_ceiling: int,
        totals: Longs,
        counts: Longs,
        resources: Sequence[str],
    ) -> Need:
        """A need with `counts` [K] pods that request `totals` [K, Q] of the `resources`."""
        key = constraints.fingerprint, group, priority_ceiling, totals.tobytes(), counts.tobytes()
        need = self._last.get(key)
        if need is None:
            sizes = sizes_of(
                (dict(zip(resources, total, strict=True)), count)
                for total, count in zip(totals.tolist(), counts.tolist(), strict=True)
            )
            need = Need(constraints, sizes, group, priority_ceiling)
        self._used[key] = need
        return need

    def forget_unused(self) -> None:
        """Keep only the needs that were asked for since the last call."""
        self._last, self._used = self._used, {}


def _without_same(gang_profile: Profile) -> Profile:
    """The profile of a folded gang: Same becomes Exists."""
    # Every machine has a hostname, so that key needs no requirement.
    requirements = [
        Requirement(r.key, Operator.EXISTS) if r.operator is Operator.SAME else r
        for r in gang_profile.requirements
        if not (r.operator is Operator.SAME and r.key == HOSTNAME_LABEL)
    ]
    return profile(
        requirements,
        (),  # Same disables spread, and still does
        gang_profile.priority,
        gang_profile.interruption_bucket,
        gang_profile.reclamation_bucket,
        alternatives=gang_profile.alternatives,
        tolerations=gang_profile.tolerations,
        never_preempts=gang_profile.never_preempts,
    )
