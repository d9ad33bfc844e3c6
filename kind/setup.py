"""The prerequisites of a kind cluster: engine, kind, node image."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controlplane.locate import query_version
from controlplane.pins import KIND_MODULE
from controlplane.request import BinaryRequest
from controlplane.resolve import obtain
from kind.engine import Engine, find_engine
from kind.nodeimage.image import resolve_node_image
from kind.nodeimage.node import NodeImage


@dataclass(frozen=True)
class Tools:
    """A working engine and kind. `cache_directory` is BigFleet's."""

    engine: Engine
    kind: Path
    cache_directory: Path

    @property
    def host_state(self) -> Path:
        """The file of saved host settings."""
        return self.cache_directory / "kind" / "host-settings.json"


@dataclass(frozen=True)
class Setup:
    """Tools and the node image."""

    tools: Tools
    node_image: NodeImage


def prepare(request: BinaryRequest, progress: Callable[[str], None]) -> Setup:
    """Provide all prerequisites; a build blocks for minutes.

    Raises KindError or controlplane's errors if a prerequisite is missing.
    """
    tools = find_tools(request, progress)
    return Setup(tools, resolve_node_image(request, tools.engine, progress))


def find_tools(request: BinaryRequest, progress: Callable[[str], None]) -> Tools:
    """The engine, and kind: the one on PATH, else the pinned one. Raises as prepare does."""
    engine = find_engine(request.environment, request.cache_directory)
    return Tools(engine, _kind(request, progress), request.cache_directory)


def _kind(request: BinaryRequest, progress: Callable[[str], None]) -> Path:
    on_path = shutil.which("kind", path=request.environment.get("PATH", ""))
    if on_path is None:
        return obtain((KIND_MODULE,), request, progress)["kind"].path
    version = query_version(Path(on_path))
    if version != KIND_MODULE.version:
        progress(f"using {on_path}: version {version}, pinned is {KIND_MODULE.version}")
    return Path(on_path)
