"""kwok's stages, with or without a network condition for Ready."""

from __future__ import annotations

from pathlib import Path

import yaml

from loaddriver.substrates.components import KWOK_STAGES, NO_NETWORK

_NODE_READY = "node-ready"
_HAS_NETWORK = {
    "jq": {
        "key": f'.status.conditions.[] | select(.type == "{NO_NETWORK}") | .status',
        "operator": "In",
        "values": ["False"],
    }
}


def write(path: Path, network_agents: bool) -> None:
    """Write kwok's configuration; with `network_agents` only Nodes with a network become Ready."""
    documents = list(yaml.safe_load_all(KWOK_STAGES.read_text()))
    (stage,) = (each for each in documents if each.get("metadata") == {"name": _NODE_READY})
    if network_agents:
        stage["spec"]["selector"]["matchExpressions"].append(_HAS_NETWORK)
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False))
