"""What a joining machine's Node must say of itself, so that the pods it is for can use it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bigfleet.model.need import Operator, Profile, Requirement


def as_met(profile: Profile, labels: Mapping[str, str]) -> Sequence[Requirement]:
    """The labels that kube-scheduler will look at for such pods, with the machine's own values:
    whatever the pods ask, these are facts. Those that the machine does not have are left out.
    """
    return [
        Requirement(key, Operator.IN, (labels[key],))
        for key in sorted(set(_keys(profile)))
        if key in labels
    ]


def _keys(profile: Profile) -> Iterator[str]:
    for term in (profile.requirements, *profile.alternatives):
        yield from (requirement.key for requirement in term)
    yield from (spread.topology_key for spread in profile.spread)
    yield from profile.anti_affinity
