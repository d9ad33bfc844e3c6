"""A machine of scripts: what is on its PATH, and what was asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kind.engine import PROVIDER_VARIABLE, Engine


@dataclass(frozen=True)
class Machine:
    """Scripts under bin/ stand in for tools that need a kernel's help; each call is a line."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        # The scripts need the host's own sh and nothing else of it.
        return {"PATH": str(self.root / "bin"), "HOME": str(self.root)}

    @property
    def calls(self) -> list[str]:
        log = self.root / "calls"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def has(self, tool: str, does: str = "") -> Path:
        """Puts a tool on PATH that notes how it is called, then runs these lines of shell."""
        path = self.root / "bin" / tool
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{tool} $*" >> "{self.root}/calls"\n{does}\n')
        path.chmod(0o755)
        return path

    def engine(self, does: str = "", name: str = "podman") -> Engine:
        return Engine(name, self.has(name, does), {**self.environment, PROVIDER_VARIABLE: name})
