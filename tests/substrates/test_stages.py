"""kwok plays the stages of the manifest; a setting says whether Nodes wait for their network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from loaddriver.substrates.components import KWOK_STAGES
from loaddriver.substrates.controlplane import write_kwok_stages


def _written(tmp_path: Path, network_agents: bool) -> list[dict[str, Any]]:
    path = tmp_path / "kwok_stages.yaml"
    write_kwok_stages(path, network_agents)
    return list(yaml.safe_load_all(path.read_text()))


def test_without_network_agents_the_stages_are_those_of_the_manifest(tmp_path: Path) -> None:
    assert _written(tmp_path, False) == list(yaml.safe_load_all(KWOK_STAGES.read_text()))


def test_with_network_agents_nodes_alone_wait_for_something_else(tmp_path: Path) -> None:
    changed = [
        new["metadata"]["name"]
        for old, new in zip(_written(tmp_path, False), _written(tmp_path, True), strict=True)
        if old != new
    ]
    assert changed == ["node-ready"]
