"""Removes a run's kind cluster, by a persistent record.

`python -m loaddriver.kindrun.removal RECORD` is called by the reaper, however the run has ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import kind.cluster
from kind.engine import Engine
from kind.errors import KindError
from kind.setup import Tools
from loaddriver.substrates.reaper.cleanup import write_removal

_MODULE = "loaddriver.kindrun.removal"
_TOOLS, _CLUSTER = "tools", "cluster"
# Beginnings of the variables by which kind and the engines find each other; no others are kept.
_NEEDED = ("PATH", "HOME", "TMPDIR", "XDG_", "KIND_", "DOCKER_", "CONTAINER", "PODMAN_")


def announce(data: Path, tools: Tools, cluster: str) -> Path:
    """Record the cleanup command in the data directory, before the cluster is created; returns
    where its kubeconfig is to be.
    """
    record = data / "kind.json"
    engine = tools.engine
    content = {
        _TOOLS: [engine.name, str(engine.path), str(tools.kind), str(tools.cache_directory)],
        _CLUSTER: cluster,
    }
    record.write_text(json.dumps(content))
    command = [sys.executable, "-m", _MODULE, str(record)]
    needed = {k: v for k, v in engine.environment.items() if k.startswith(_NEEDED)}
    write_removal(data, command, needed)
    return _kubeconfig(record)


def remove(record: Path, environment: Mapping[str, str]) -> None:
    """Remove everything in the record; idempotent. Raises KindError or OSError."""
    content = json.loads(record.read_text())
    name, path, kind_path, cache = content[_TOOLS]
    engine, cluster = Engine(name, Path(path), environment), content[_CLUSTER]
    kind.cluster.delete(Tools(engine, Path(kind_path), Path(cache)), cluster, _kubeconfig(record))
    _remove_volumes(engine, f"{cluster}-control-plane")


def _kubeconfig(record: Path) -> Path:
    return record.with_suffix(".kubeconfig")


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
        print(f"the kind cluster could not be removed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
