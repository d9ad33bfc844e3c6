"""Gates: the limits of expect.yaml that a run must meet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from loaddriver.errors import ProfileError
from loaddriver.profile.archetypes import Sentence
from loaddriver.profile.decoding import ConfigStruct, decode
from loaddriver.profile.yaml_reader import read_yaml

# Keys of the summary, archetypes among them, or * for each of them.
_METRIC = r"^[A-Za-z][A-Za-z0-9]*(\.([-A-Za-z0-9]+|\*))*$"


class Gate(ConfigStruct, frozen=True, kw_only=True):
    """A limit on one number of the summary (`metric`, a dotted path), and its `origin`.

    A `*` in the path matches every name, such as every archetype; the limit applies to each. With
    `ratioTo: bare` the limit is on the ratio to the same number of the paired bare run, with
    `ratioTo: calibration` on that of CPU seconds to the calibration task's on the same machine.
    """

    name: str
    metric: Annotated[str, msgspec.Meta(pattern=_METRIC)]
    op: Literal["<=", ">=", "=="]
    limit: float
    unit: str
    origin: Sentence
    ratio_to: Literal["bare", "calibration"] | None = None


class Expectations(ConfigStruct, frozen=True, kw_only=True):
    """expect.yaml."""

    gates: Annotated[tuple[Gate, ...], msgspec.Meta(min_length=1)]


def load_gates(path: Path, label: str = "") -> tuple[Gate, ...]:
    """The gates of an expectation file; errors name it `label`, or else by its path.

    Raises ProfileError with every mistake found.
    """
    where = label or str(path)
    expectations, problems = decode(read_yaml(path, where), Expectations)
    if expectations is None:
        raise ProfileError([f"{where}: {problem.path} {problem.text}" for problem in problems])
    names = [gate.name for gate in expectations.gates]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ProfileError([f"{where}: duplicate gate name {name!r}" for name in repeated])
    return expectations.gates
