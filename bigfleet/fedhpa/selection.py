"""Which registered clusters an object may use, in what order and within what bounds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from bigfleet.fedhpa.objects import (
    PREFERENCES,
    Autoscaler,
    ClusterSelection,
    Preference,
)
from bigfleet.fedhpa.shares import UNBOUNDED, ClusterBounds
from bigfleet.kube.selectors import selects
from bigfleet.model.errors import InvalidInput

Labels = Mapping[str, str]
_ALL_OTHERS = "*"


def selected(selection: ClusterSelection, registered: Mapping[str, Labels]) -> list[str]:
    """Names by rank: as listed by the user, else in alphabetical order."""
    if selection.names:
        return [name for name in selection.names if name in registered]
    return sorted(name for name, has in registered.items() if selects(selection.selector, has))


def bounds(preferences: Sequence[Preference], name: str) -> ClusterBounds:
    """The bounds for one cluster: its own entry's, else those of "*"."""
    by_name = {each.cluster: each for each in preferences}
    found = by_name.get(name) or by_name.get(_ALL_OTHERS)
    if found is None:
        return ClusterBounds()
    max_replicas = UNBOUNDED if found.max_replicas is None else found.max_replicas
    return ClusterBounds(found.min_replicas or 0, max_replicas)


class _Annotated(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    min_replicas: int | None = None
    max_replicas: int | None = None
    weight: int | None = None


class _Annotation(msgspec.Struct, forbid_unknown_fields=True):
    """The format of the former federation; `rebalance` and `weight` are accepted but ignored."""

    clusters: dict[str, _Annotated]
    rebalance: bool | None = None


def preferences_of(autoscaler: Autoscaler) -> list[Preference]:
    """The preferences in the spec, and those in the annotation for other clusters.

    InvalidInput when the annotation is invalid.
    """
    text = autoscaler.metadata.annotations.get(PREFERENCES)
    if text is None:
        return autoscaler.spec.preferences
    try:
        found = msgspec.json.decode(text, type=_Annotation)
    except msgspec.MsgspecError as error:
        hint = f'must be JSON like {{"clusters": {{"NAME": {{"minReplicas": 1}}}}}}: {error}'
        raise InvalidInput(f"annotation {PREFERENCES}", text, hint) from None
    named = {each.cluster for each in autoscaler.spec.preferences}
    more = [
        Preference(name, _checked(name, each.min_replicas), _checked(name, each.max_replicas))
        for name, each in found.clusters.items()
        if name not in named
    ]
    for each in more:
        if each.max_replicas is not None and (each.min_replicas or 0) > each.max_replicas:
            hint = f"has minReplicas above maxReplicas for cluster {each.cluster}"
            raise InvalidInput(f"annotation {PREFERENCES}", text, hint)
    return [*autoscaler.spec.preferences, *more]


def named(autoscaler: Autoscaler) -> list[str]:
    """The clusters that the spec or annotation refers to by name."""
    try:
        preferences = preferences_of(autoscaler)
    except InvalidInput:
        preferences = autoscaler.spec.preferences
    preferred = [each.cluster for each in preferences if each.cluster != _ALL_OTHERS]
    return list(dict.fromkeys([*autoscaler.spec.clusters.names, *preferred]))


def _checked(cluster: str, replicas: int | None) -> int | None:
    if replicas is not None and replicas < 0:
        what = f"annotation {PREFERENCES}: cluster {cluster}"
        raise InvalidInput(what, replicas, "is negative; replicas are 0 or more")
    return replicas
