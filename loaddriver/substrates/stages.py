"""What kwok plays, with the time that a Node takes until it is Ready."""

from __future__ import annotations

from pathlib import Path

import yaml

from loaddriver.substrates.components import KWOK_STAGES

_NODE_READY = "node-ready"


def write(path: Path, node_ready_seconds: float) -> None:
    """Write kwok's configuration, in which a Node is Ready so long after it has been registered."""
    documents = list(yaml.safe_load_all(KWOK_STAGES.read_text()))
    (stage,) = (each for each in documents if each.get("metadata") == {"name": _NODE_READY})
    if node_ready_seconds:
        stage["spec"]["delay"] = {"durationMilliseconds": round(node_ready_seconds * 1000)}
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False))
