"""kwok plays the stages of the manifest; how long a Node takes until it is Ready is a setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from loaddriver.substrates import stages
from loaddriver.substrates.components import KWOK_STAGES


def _written(tmp_path: Path, seconds: float) -> list[dict[str, Any]]:
    path = tmp_path / "stages.yaml"
    stages.write(path, seconds)
    return list(yaml.safe_load_all(path.read_text()))


def test_without_a_wait_the_stages_are_those_of_the_manifest(tmp_path: Path) -> None:
    assert _written(tmp_path, 0.0) == list(yaml.safe_load_all(KWOK_STAGES.read_text()))


def test_a_wait_is_that_of_nodes_alone(tmp_path: Path) -> None:
    delay = {"durationMilliseconds": 1500}
    changed = [
        (new["metadata"]["name"], new["spec"].pop("delay"))
        for old, new in zip(_written(tmp_path, 0.0), _written(tmp_path, 1.5), strict=True)
        if old != new
    ]
    assert changed == [("node-ready", delay)]
