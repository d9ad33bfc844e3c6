"""Where the volumes are that a claim of a class without a provisioner may be bound to. Pure.

Without a provisioner a claim is bound to an existing volume, so its pod can run only where there is
a suitable one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from bigfleet.controllers.pod_controller.storage import (
    Choices,
    Claim,
    StorageClass,
    Volume,
    volume_choices,
)
from bigfleet.controllers.podspec.node_requirements import RequirementBody, TermBody
from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.pod_types import Quantities
from bigfleet.kube.selectors import selects
from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_STORAGE = "storage"
_FILESYSTEM = "Filesystem"
# More than any volume has, and within 64 bits.
_MAX_KIBIBYTES = 2**62


def has_no_provisioner(storage_class: StorageClass) -> bool:
    """Whether claims of the class are bound to existing volumes only."""
    return storage_class.provisioner == _NO_PROVISIONER


def free_choices(claim: Claim, volumes: Iterable[Volume]) -> Choices | None:
    """Where the `volumes` are that the claim may be bound to; None where that is no constraint.

    It is none while there is no such volume, and where volumes of the class are local to Nodes: a
    new Node gets some, too.
    """
    of_class = [each for each in volumes if each.spec.storage_class_name == claim.storage_class]
    terms: list[TermBody] = []
    for volume in of_class:
        try:
            reachable = _terms(volume)
        except Unsupported:
            return None
        terms += reachable if _fits(claim, volume) else ()
    if [] in terms:
        return []
    return [_merged(terms)] if terms else None


def _fits(claim: Claim, volume: Volume) -> bool:
    spec, wanted = volume.spec, claim.spec
    if not _is_free(volume, claim):
        return False
    if (spec.volume_mode or _FILESYSTEM) != (wanted.volume_mode or _FILESYSTEM):
        return False
    if not set(wanted.access_modes or ()) <= set(spec.access_modes or ()):
        return False
    if wanted.selector and not selects(wanted.selector, volume.metadata.labels or {}):
        return False
    return _kibibytes(spec.capacity) >= _kibibytes(wanted.resources.requests)


def _is_free(volume: Volume, claim: Claim) -> bool:
    if volume.metadata.deletion_timestamp or volume.status.phase in ("Released", "Failed"):
        return False
    owner = volume.spec.claim_ref
    own = (claim.metadata.namespace, claim.metadata.name)
    return not owner.name or (owner.namespace, owner.name) == own


def _kibibytes(quantities: Quantities | None) -> int:
    amount = str((quantities or {}).get(_STORAGE, 0))
    try:
        return resources.parse(_STORAGE, amount, round_up=True, limit=_MAX_KIBIBYTES)
    except InvalidInput:
        return _MAX_KIBIBYTES


def _terms(volume: Volume) -> list[TermBody]:
    """The terms by which a machine reaches the volume, ORed."""
    return [
        [requirement for term in terms for requirement in term]
        for terms in product(*volume_choices(volume))
    ]


def _merged(terms: list[TermBody]) -> list[TermBody]:
    """Equivalent, with fewer terms: many volumes in a few zones become one list of zones."""
    others: list[TermBody] = []
    values: dict[str, set[str]] = {}
    for term in terms:
        if (alone := _only_in(term)) is not None:
            values.setdefault(alone["key"], set()).update(alone["values"])
        elif term not in others:
            others.append(term)
    lists: list[TermBody] = [
        [{"key": key, "operator": "In", "values": sorted(found)}]
        for key, found in sorted(values.items())
    ]
    return [*lists, *others]


def _only_in(term: TermBody) -> RequirementBody | None:
    if len(term) == 1 and term[0]["operator"] == "In":
        return term[0]
    return None
