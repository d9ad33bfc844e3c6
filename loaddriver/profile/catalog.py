"""The catalog: what kinds of workloads tenants run, and the machines that they run on.

There are two sorts. One describes demand and supply together: a machine of an instance type is
exactly `podsPerMachine` pods of the one pod size that names the type, so a fleet derived from it
can never disagree with the pods that need it. The other has ordinary instance types, which pods of
all sizes share, as in most clusters; then the profile says how many of which there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from loaddriver.errors import ProfileError
from loaddriver.profile.archetypes import Archetype, sizes_of
from loaddriver.profile.catalog_checks import catalog_errors
from loaddriver.profile.decoding import ConfigStruct, decode
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.instance_types import DaemonSet, InstanceType, Pricing, SystemReserved
from loaddriver.profile.yaml_reader import read_yaml

DEFAULT = "catalog"


class Catalog(ConfigStruct, frozen=True, kw_only=True):
    """All archetypes, the price list and, where machines are ordinary ones, their types, what the
    system keeps of each, and the DaemonSets of every cluster.
    """

    pricing: Pricing
    archetypes: Annotated[tuple[Archetype, ...], msgspec.Meta(min_length=1)]
    instance_types: tuple[InstanceType, ...] = ()
    system_reserved: SystemReserved | None = None
    daemon_sets: tuple[DaemonSet, ...] = ()

    @property
    def shares_machines(self) -> bool:
        """Whether machines are ordinary ones, which pods of all archetypes share."""
        return bool(self.instance_types)

    def archetype(self, name: str) -> Archetype:
        """The archetype of that name. Raises KeyError: plans hold known names only."""
        return {archetype.name: archetype for archetype in self.archetypes}[name]

    def weight_sets(self) -> tuple[str, ...]:
        """Names of all weight sets that any archetype takes part in."""
        return tuple(sorted({name for each in self.archetypes for name in each.weights}))


def load_catalog(profiles_dir: Path, profile_name: str, common: str = DEFAULT) -> Catalog:
    """The catalog a profile runs with.

    `profiles/<name>/catalog.yaml` replaces the `common` one, `profiles/<common>.yaml`;
    `profiles/<name>/archetypes.yaml` (a list) adds archetypes to either, and one
    with a name that exists already takes that one's place.
    Raises ProfileError with every mistake found.
    """
    own = profiles_dir / profile_name / "catalog.yaml"
    path = own if own.is_file() else profiles_dir / f"{common}.yaml"
    raw = read_yaml(path, _label(path))
    extra = profiles_dir / profile_name / "archetypes.yaml"
    if extra.is_file() and isinstance(raw, dict):
        raw = _with_extra_archetypes(raw, read_yaml(extra, _label(extra)), _label(extra))
    return decode_catalog(raw, _label(path))


def decode_catalog(raw: Any, where: str) -> Catalog:
    """A checked catalog from parsed YAML. Raises ProfileError with every mistake."""
    catalog, problems = decode(raw, Catalog)
    if catalog is not None:
        problems = list(catalog_errors(catalog))
    if catalog is None or problems:
        raise ProfileError([f"{where}: {problem.path} {problem.text}" for problem in problems])
    archetypes = tuple(_with_sizes(each) for each in catalog.archetypes)
    return msgspec.structs.replace(catalog, archetypes=archetypes)


def pod_shares(weights: str | Mapping[str, float], catalog: Catalog) -> dict[str, float]:
    """Each archetype's part of all pods, adding up to 1, in catalog order.

    `weights` names a weight set or gives weights by archetype.
    Raises ProfileError (path `weights`) for unknown names or an empty sum.
    """
    chosen = _weights_of_set(weights, catalog) if isinstance(weights, str) else weights
    names = [archetype.name for archetype in catalog.archetypes]
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise ProfileError(
            [f"weights.{name}: no such archetype{did_you_mean(name, names)}" for name in unknown]
        )
    total = sum(chosen.values())
    if total <= 0:
        raise ProfileError(["weights: they add up to 0; give at least one archetype a weight"])
    return {name: chosen[name] / total for name in names if chosen.get(name, 0) > 0}


def _weights_of_set(name: str, catalog: Catalog) -> dict[str, float]:
    if name not in catalog.weight_sets():
        known = did_you_mean(name, catalog.weight_sets())
        raise ProfileError([f"weights = {name!r}: no archetype has weights of that name{known}"])
    return {each.name: each.weights[name] for each in catalog.archetypes if name in each.weights}


def _with_sizes(archetype: Archetype) -> Archetype:
    if archetype.size_quantiles is None:
        return archetype
    return msgspec.structs.replace(archetype, sizes=sizes_of(archetype.size_quantiles))


def _with_extra_archetypes(raw: dict[str, Any], extra: Any, where: str) -> dict[str, Any]:
    if not isinstance(extra, list) or not all(isinstance(each, dict) for each in extra):
        raise ProfileError([f"{where}: expected a list of archetypes"])
    replaced = {each.get("name") for each in extra}
    kept = [each for each in raw.get("archetypes", []) if each.get("name") not in replaced]
    return {**raw, "archetypes": [*kept, *extra]}


def _label(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
