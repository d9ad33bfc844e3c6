"""What a user asked to compare -> the two sides of a session. Pure but for its ports."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loaddriver.compare.injection import injection_of
from loaddriver.compare.sequential import LOOKS, MOST_PAIRS
from loaddriver.compare.state import SIDES, SessionSpec, SideName, SideSpec
from loaddriver.compare.systems import WORKING_TREE
from loaddriver.errors import ProfileError
from loaddriver.run.system import BIGFLEET

LEAST_PAIRS = 2
DEFAULT_PAIRS = f"{LOOKS[0]}..{LOOKS[-1]}"
_PAIRS = re.compile(r"(\d+)(?:\.\.(\d+))?")
_TWO = 2


@dataclass(frozen=True)
class Request:
    """The flags of `loaddriver compare` that make a session.

    `kubernetes` and `scheduler_config` are `A,B`, `components` are `NAME=PATH` for HEAD or
    `NAME=PATH,PATH` for both sides; `inject` is `FAULT=+P%` for HEAD. `at_once` plays both runs of
    a pair at the same time.
    """

    profile: str
    base: str | None = None
    head: str | None = None
    seed: int | None = None
    pairs: str = DEFAULT_PAIRS
    least_effect_percent: float = 10.0
    kubernetes: str | None = None
    scheduler_config: str | None = None
    profiles: str = ""
    components: Sequence[str] = ()
    overrides: Mapping[SideName, Sequence[str]] = field(default_factory=dict)
    inject: str = ""
    at_once: bool = False


@dataclass(frozen=True)
class Ports:
    """What a request needs of this machine; each raises ProfileError for what is not usable.

    `system` sets up a revision and returns its checkout, "" for the harness's own;
    `scheduler_config` returns a checked file, `component` the name and path of `NAME=PATH`.
    """

    system: Callable[[str], str]
    scheduler_config: Callable[[str], str]
    component: Callable[[str], tuple[str, Path]]


def session_spec(request: Request, ports: Ports, order_seed: int) -> SessionSpec:
    """The session that was asked for. Raises ProfileError, before anything is set up if it can."""
    least, most = pairs_of(request.pairs)
    least_effect = least_effect_of(request.least_effect_percent)
    kubernetes = _two("--kubernetes", request.kubernetes)
    configs = _two("--scheduler-config", request.scheduler_config)
    components = _components(request.components, ports.component)
    revisions = (request.base or WORKING_TREE, request.head or WORKING_TREE)
    overrides = [list(request.overrides.get(side, ())) for side in SIDES]
    settings = [
        (revisions[n], kubernetes[n], configs[n], components[n], overrides[n]) for n in range(_TWO)
    ]
    if request.inject:
        injection_of(request.inject)
        if settings[0] != settings[1]:
            raise ProfileError(["--inject: what it does to HEAD has to be their only difference"])
        if BIGFLEET in components[0]:
            raise ProfileError(["--inject: leave out --component bigfleet, or use --base, --head"])
    elif settings[0] == settings[1] and not (request.base and request.head):
        raise ProfileError(
            [
                "both sides are the same: give --base and --head (the same revision twice shows "
                "the noise), --kubernetes, --scheduler-config, --component, --set-base, --set-head"
            ]
        )
    extras = [
        _extras(version, config, programs, changed)
        for _, version, config, programs, changed in settings
    ]
    base, head = (
        SideSpec(
            label=_label(revision, [each for each in extras[n] if each not in extras[1 - n]]),
            sut=ports.system(revision),
            kubernetes_version=version,
            scheduler_config=ports.scheduler_config(config) if config else "",
            components=programs,
            overrides=changed,
        )
        for n, (revision, version, config, programs, changed) in enumerate(settings)
    )
    return SessionSpec(
        profile=request.profile,
        seed=request.seed,
        least_pairs=least,
        most_pairs=most,
        least_effect=least_effect,
        order_seed=order_seed,
        base=base,
        head=head,
        inject=request.inject,
        at_once=request.at_once,
        profiles=request.profiles,
    )


def pairs_of(text: str) -> tuple[int, int]:
    """The fewest and the most pairs of `6..16` or `8`. Raises ProfileError."""
    found = _PAIRS.fullmatch(text)
    least, most = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not LEAST_PAIRS <= least <= most <= MOST_PAIRS:
        raise ProfileError(
            [f"--pairs {text}: expected N..M or N, from {LEAST_PAIRS} to {MOST_PAIRS}"]
        )
    return least, most


def least_effect_of(percent: float) -> float:
    """The least effect as a ratio above 1. Raises ProfileError."""
    if percent <= 0:
        raise ProfileError([f"--least-effect {percent:g}: must be above 0"])
    return 1 + percent / 100


def _two(flag: str, text: str | None) -> tuple[str, str]:
    """A value for each side; "" where the flag is not given. Raises ProfileError."""
    if not text:
        return "", ""
    found = text.split(",")
    if len(found) != _TWO or not all(found):
        raise ProfileError([f"{flag} {text}: expected one value for each side: A,B"])
    return found[0], found[1]


def _components(
    given: Sequence[str], component: Callable[[str], tuple[str, Path]]
) -> tuple[dict[str, str], dict[str, str]]:
    """The programs of each side by component. Raises ProfileError."""
    base: dict[str, str] = {}
    head: dict[str, str] = {}
    for each in given:
        name, _, paths = each.partition("=")
        first, _, second = paths.partition(",")
        name, path = component(f"{name}={second or first}")
        head[name] = str(path)
        if second:
            base[name] = str(component(f"{name}={first}")[1])
    return base, head


def _extras(
    version: str, config: str, programs: Mapping[str, str], changed: Sequence[str]
) -> list[str]:
    """What a side has beside its revision, in short."""
    named = [f"Kubernetes {version}" if version else "", Path(config).name if config else ""]
    return [*filter(None, named), *programs.values(), *changed]


def _label(revision: str, extras: Sequence[str]) -> str:
    """A side's name in headings: its revision, and what it alone has."""
    own = "this checkout" if revision == WORKING_TREE else revision
    return ", ".join([own, *extras])
