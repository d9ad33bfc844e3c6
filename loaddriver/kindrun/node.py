"""The only node of a run's kind cluster: a container whose own kubectl does what is asked."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kind.engine import Engine
from kind.errors import KindError

_KUBECTL = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf")
# Results of a large run have gigabytes.
_COPY_SECONDS = 600.0
_DIAGNOSED = ("events", "pods", "nodes", "persistentvolumeclaims", "jobs")


@dataclass(frozen=True)
class Node:
    """The node container called `name`."""

    engine: Engine
    name: str

    def kubectl(self, *arguments: str, timeout_seconds: float = 60.0) -> str:
        """The output of a kubectl command. Raises KindError."""
        command = ("exec", self.name, *_KUBECTL, *arguments)
        return self.engine.run(*command, timeout_seconds=timeout_seconds)

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Apply the objects. Raises KindError."""
        content = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps(content).encode())
            file.seek(0)
            command = ("exec", "--interactive", self.name, *_KUBECTL, "apply", "--filename=-")
            self.engine.run(*command, input=file)

    def lines(self, *arguments: str) -> Iterator[str]:
        """The lines that a kubectl command prints, as they come; its failure just ends them."""
        command = [str(self.engine.path), "exec", self.name, *_KUBECTL, *arguments]
        with subprocess.Popen(
            command,
            env=dict(self.engine.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    yield line.rstrip("\n")
            finally:
                process.kill()

    def make_folders(self, paths: Sequence[str]) -> None:
        """Make folders that any pod may write to. Raises KindError."""
        self.engine.run("exec", self.name, "mkdir", "--parents", "--mode=777", *paths)

    def copy_out(self, path: str, to: Path) -> None:
        """Copy what a folder of the node has into a folder of this machine. Raises KindError."""
        source = f"{self.name}:{path}/."
        self.engine.run("cp", source, str(to), timeout_seconds=_COPY_SECONDS)

    def write_objects(self, folder: Path) -> None:
        """Write what may explain a failure as JSON, as far as it can still be had."""
        folder.mkdir(parents=True, exist_ok=True)
        for kind in _DIAGNOSED:
            with suppress(KindError):
                found = self.kubectl("get", kind, "--all-namespaces", "--output=json")
                (folder / f"{kind}.json").write_text(found)
