"""The group of a need: why its pods are counted apart from others of the same profile.

In roll-ups and in keys a group is text: "" (plain), "additional", "folded:KEY", or any other text,
which identifies a PodGroup.
"""

from __future__ import annotations

from dataclasses import dataclass

_ADDITIONAL_TEXT = "additional"
_FOLDED_PREFIX = "folded:"


@dataclass(frozen=True, slots=True)
class Plain:
    """Pods that nothing but their profile sets apart; use PLAIN."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of one gang, or pods that spread together or repel each other."""

    #: never the text of another kind of group; an operator's begins with a bracket
    identifier: str


@dataclass(frozen=True, slots=True)
class FoldedGangs:
    """Gangs each of which fits on one machine; a pod of the need is a whole gang.

    Only a shard makes such groups; in a roll-up they are rejected.
    """

    #: the label whose value each gang's pods must share
    topology_key: str


@dataclass(frozen=True, slots=True)
class Additional:
    """Pods that kube-scheduler cannot bind although their need is met: only a machine beyond those
    that serve other needs helps them. Use ADDITIONAL.
    """


Group = Plain | PodGroup | FoldedGangs | Additional

PLAIN = Plain()
ADDITIONAL = Additional()


def group_text(group: Group) -> str:
    """The text of a group, unique to it; groups are sorted by it."""
    match group:
        case Plain():
            return ""
        case PodGroup(identifier):
            return identifier
        case FoldedGangs(topology_key):
            return _FOLDED_PREFIX + topology_key
        case Additional():
            return _ADDITIONAL_TEXT


def group_of_text(text: str) -> Group:
    """The group with this text; the inverse of `group_text`."""
    if not text:
        return PLAIN
    if text == _ADDITIONAL_TEXT:
        return ADDITIONAL
    if text.startswith(_FOLDED_PREFIX):
        return FoldedGangs(text.removeprefix(_FOLDED_PREFIX))
    return PodGroup(text)
