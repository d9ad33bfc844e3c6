"""Removes a run's kind clusters, by a persistent record.

`python -m loaddriver.substrates.kind.removal RECORD` is called by the reaper if the runner
did not do it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import kind.cluster
from kind.engine import Engine
from kind.errors import KindError
from kind.setup import Tools
from loaddriver.substrates.reaper.cleanup import REMOVAL_FILE, write_removal

_MODULE = "loaddriver.substrates.kind.removal"
_TOOLS, _CLUSTERS = "tools", "clusters"
# Beginnings of the variables by which kind and the engines find each other; no others are kept.
_NEEDED = ("PATH", "HOME", "TMPDIR", "XDG_", "KIND_", "DOCKER_", "CONTAINER", "PODMAN_")


def announce(data: Path, tools: Tools, clusters: Sequence[str]) -> Path:
    """Record the cleanup command in the data directory, before the first cluster is created."""
    record = data / "kind.json"
    engine = tools.engine
    content = {
        _TOOLS: [engine.name, str(engine.path), str(tools.kind), str(tools.cache_directory)],
        _CLUSTERS: list(clusters),
    }
    record.write_text(json.dumps(content))
    command = [sys.executable, "-m", _MODULE, str(record)]
    needed = {k: v for k, v in engine.environment.items() if k.startswith(_NEEDED)}
    write_removal(data, command, needed)
    return record


def remove(record: Path, environment: Mapping[str, str]) -> None:
    """Remove everything in the record; idempotent. Raises KindError or OSError."""
    content = json.loads(record.read_text())
    name, path, kind_path, cache = content[_TOOLS]
    engine = Engine(name, Path(path), environment)
    tools = Tools(engine, Path(kind_path), Path(cache))
    for cluster in content[_CLUSTERS]:
        kind.cluster.delete(tools, cluster, record.with_name(f"{cluster}.kubeconfig"))
        _remove_volumes(engine, f"{cluster}-control-plane")
    with suppress(FileNotFoundError):
        (record.parent / REMOVAL_FILE).unlink()


def _remove_volumes(engine: Engine, node: str) -> None:
    """Of a node that was cut short before it had a container, kind itself finds none."""
    volumes = engine.run("volume", "ls", "--quiet", "--filter", f"label={node}").split()
    if volumes:
        engine.run("volume", "rm", "--force", *volumes)


def main(arguments: Sequence[str]) -> int:
    """Remove; return 0 if nothing is left."""
    try:
        remove(Path(arguments[0]), dict(os.environ))
    except (KindError, OSError) as error:
        print(f"kind clusters could not be removed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
