"""Loads a profile with its gates and catalog, and reports every mistake in them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from loaddriver.errors import ProfileError
from loaddriver.profile.archetypes import Archetype, sizes_of
from loaddriver.profile.catalog import DEFAULT_CATALOG, Catalog
from loaddriver.profile.catalog_checks import catalog_errors
from loaddriver.profile.checks import settings_errors
from loaddriver.profile.decoding import FieldError, decode
from loaddriver.profile.gates import Gate, load_gates
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.overrides import apply_overrides
from loaddriver.profile.pod_template import archetype_keys
from loaddriver.profile.settings import ProfileSettings
from loaddriver.profile.yaml_reader import read_yaml

PROFILES = Path(__file__).resolve().parents[2] / "profiles"
"""The profiles that come with the harness."""
# With the time and the arm it names a run, whose sockets' paths may have 107 bytes.
_LONGEST_NAME = 28


@dataclass(frozen=True)
class Profile:
    """A valid profile with its gates and catalog."""

    name: str
    settings: ProfileSettings
    gates: tuple[Gate, ...]
    catalog: Catalog


def profile_names(profiles_dir: Path) -> tuple[str, ...]:
    """The names of the profiles in `profiles_dir`, sorted."""
    return tuple(sorted(path.parent.name for path in profiles_dir.glob("*/profile.yaml")))


def load_profile(
    name: str, profiles_dir: Path, overrides: Sequence[str] = (), seed: int | None = None
) -> Profile:
    """Load the profile called `name` with `overrides` ("dotted.key=yaml value") and `seed`.

    Raises ProfileError with every mistake in profile.yaml, expect.yaml, the
    catalog and the overrides.
    """
    known = profile_names(profiles_dir)
    if name not in known:
        raise ProfileError([f"no profile {name!r}{did_you_mean(name, known)}"])
    if len(name) > _LONGEST_NAME:
        raise ProfileError([f"{name}: the name of a profile has at most {_LONGEST_NAME} letters"])
    settings, catalog = None, None
    gates: tuple[Gate, ...] = ()
    problems: list[str] = []
    with _collecting(problems):
        settings, catalog = _load_settings(name, profiles_dir, overrides, seed)
    with _collecting(problems):
        gates = load_gates(profiles_dir / name / "expect.yaml", f"{name}/expect.yaml")
    if settings is None or catalog is None or problems:
        raise ProfileError(problems)
    return Profile(name, settings, gates, catalog)


@contextmanager
def _collecting(problems: list[str]) -> Iterator[None]:
    """Add the problems of a ProfileError raised inside to `problems`, and go on after the block."""
    try:
        yield
    except ProfileError as error:
        problems.extend(error.problems)


def _load_settings(
    name: str, profiles_dir: Path, overrides: Sequence[str], seed: int | None
) -> tuple[ProfileSettings, Catalog]:
    where = f"{name}/profile.yaml"
    raw = read_yaml(profiles_dir / name / "profile.yaml", where)
    raw, changed = apply_overrides(raw, overrides, seed, where)
    catalog = None
    catalog_lines: list[str] = []
    with _collecting(catalog_lines):
        catalog = load_catalog(profiles_dir, name, _catalog_name(raw, profiles_dir, where))
    settings, errors = decode(raw, ProfileSettings)
    if settings is not None:
        settings = _with_federation_seconds(settings)
        errors = settings_errors(settings, catalog)
    lines = [*(_line(error, where, changed) for error in errors), *catalog_lines]
    if settings is None or catalog is None or lines:
        raise ProfileError(lines)
    return settings, catalog


def load_catalog(profiles_dir: Path, profile_name: str, common: str = DEFAULT_CATALOG) -> Catalog:
    """Load the catalog of a profile.

    `profiles/<name>/catalog.yaml` replaces `profiles/<common>.yaml`;
    `profiles/<name>/archetypes.yaml` (a list) adds archetypes to either, or replaces those of the
    same name; one with `podTemplate: FILE` has that pod's constraints. Raises ProfileError with
    every mistake found.
    """
    own = profiles_dir / profile_name / "catalog.yaml"
    path = own if own.is_file() else profiles_dir / f"{common}.yaml"
    raw = read_yaml(path, _label(path))
    extra = profiles_dir / profile_name / "archetypes.yaml"
    if extra.is_file() and isinstance(raw, dict):
        found = read_yaml(extra, _label(extra))
        raw = _with_extra_archetypes(raw, _from_templates(found, extra), _label(extra))
    return _decode_catalog(raw, _label(path))


def _decode_catalog(raw: Any, where: str) -> Catalog:
    """Decode and check a catalog. Raises ProfileError with every mistake."""
    catalog, problems = decode(raw, Catalog)
    if catalog is not None:
        problems = list(catalog_errors(catalog))
    if catalog is None or problems:
        raise ProfileError([f"{where}: {problem.path} {problem.text}" for problem in problems])
    archetypes = tuple(_with_sizes(each) for each in catalog.archetypes)
    return msgspec.structs.replace(catalog, archetypes=archetypes)


def _catalog_name(raw: Any, profiles_dir: Path, where: str) -> str:
    """The catalog that the profile names; a value that is no string is reported by `decode`."""
    named = raw.get("catalog", DEFAULT_CATALOG) if isinstance(raw, dict) else DEFAULT_CATALOG
    if not isinstance(named, str):
        return DEFAULT_CATALOG
    known = [path.stem for path in profiles_dir.glob("*.yaml")]
    if named not in known:
        hint = did_you_mean(named, known)
        raise ProfileError([f"{where}: catalog = {named!r}: no profiles/{named}.yaml{hint}"])
    return named


def _with_federation_seconds(settings: ProfileSettings) -> ProfileSettings:
    """Extend the soak by the length of the federation's phases."""
    if settings.federation is None:
        return settings
    seconds = settings.federation.seconds + settings.soak.seconds
    soak = msgspec.structs.replace(settings.soak, seconds=seconds)
    return msgspec.structs.replace(settings, soak=soak)


def _with_sizes(archetype: Archetype) -> Archetype:
    if archetype.size_quantiles is None:
        return archetype
    return msgspec.structs.replace(archetype, sizes=sizes_of(archetype.size_quantiles))


def _from_templates(extra: Any, path: Path) -> Any:
    """The archetypes with what their `podTemplate`, a file beside `path`, says; own keys win."""
    if not isinstance(extra, list):
        return extra
    expanded = []
    for each in extra:
        if isinstance(each, dict) and isinstance(each.get("podTemplate"), str):
            own = {key: value for key, value in each.items() if key != "podTemplate"}
            file = path.parent / each["podTemplate"]
            manifest = read_yaml(file, _label(file))
            each = {**archetype_keys(manifest, _label(file)), **own}
        expanded.append(each)
    return expanded


def _with_extra_archetypes(raw: dict[str, Any], extra: Any, where: str) -> dict[str, Any]:
    if not isinstance(extra, list) or not all(isinstance(each, dict) for each in extra):
        raise ProfileError([f"{where}: expected a list of archetypes"])
    replaced = {each.get("name") for each in extra}
    kept = [each for each in raw.get("archetypes", []) if each.get("name") not in replaced]
    return {**raw, "archetypes": [*kept, *extra]}


def _label(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _line(problem: FieldError, where: str, changed: Sequence[str]) -> str:
    """Format a problem as one line, naming the command line as origin if it changed the value."""
    touched = any(problem.path == path or problem.path.startswith(f"{path}.") for path in changed)
    origin = f"{where} (overridden on the command line)" if touched else where
    return f"{origin}: {problem.path} {problem.text}"
