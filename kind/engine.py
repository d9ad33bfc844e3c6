"""The container engine of this machine: one that really answers, and how it must be run here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kind.command import run
from kind.containers_conf import HostFacts, containers_conf
from kind.errors import KindError, KindUsageError
from kind.host_tools import missing_tools

ENGINES = ("docker", "podman")
# kind's own switch; whoever has set it for kind means the same here.
PROVIDER_VARIABLE = "KIND_EXPERIMENTAL_PROVIDER"

_ANSWER_SECONDS = 20.0
_PULL_SECONDS = 600.0
# What an engine starts by name and cannot do without.
_HELPERS: Mapping[str, tuple[str, ...]] = {"docker": (), "podman": ("iptables", "runc")}
_ADVICE = "install Docker and start it, or install podman (Debian: apt-get install podman runc)"


@dataclass(frozen=True)
class Engine:
    """docker or podman. environment is complete: every child that talks to the engine needs it."""

    name: str
    path: Path
    environment: Mapping[str, str]

    def run(
        self, *arguments: str, timeout_seconds: float = 60.0, input: IO[bytes] | None = None
    ) -> str:
        """Standard output of one engine command. Raises KindError with its last lines."""
        command = [str(self.path), *arguments]
        return run(command, self.environment, timeout_seconds, input).decode("utf-8")

    def has_image(self, reference: str) -> bool:
        """Whether the engine's own store holds the image."""
        try:
            self.run("image", "inspect", "--format", "{{.Id}}", reference)
        except KindError:
            return False
        return True

    def can_pull(self, reference: str, progress: Callable[[str], None]) -> bool:
        """Whether the image is there, or was fetched just now."""
        if self.has_image(reference):
            return True
        progress(f"pulling {reference}")
        try:
            self.run("pull", "--quiet", reference, timeout_seconds=_PULL_SECONDS)
        except KindError as error:
            progress(f"no {reference} here, so one is made: {error}")
            return False
        return True


def find_engine(environment: Mapping[str, str], cache_directory: Path) -> Engine:
    """The engine that KIND_EXPERIMENTAL_PROVIDER names, else the first that answers.

    Raises KindError where none does, with what to install or start; KindUsageError for a name
    that is none of ENGINES.
    """
    asked = environment.get(PROVIDER_VARIABLE)
    if asked and asked not in ENGINES:
        raise KindUsageError(f"{PROVIDER_VARIABLE}={asked}: give one of {', '.join(ENGINES)}")
    reasons: list[str] = []
    for name in (asked,) if asked else ENGINES:
        found = shutil.which(name, path=environment.get("PATH", ""))
        if found is None:
            reasons.append(f"{name} is not installed")
            continue
        engine = Engine(name, Path(found), _environment(name, environment, cache_directory))
        if _answers(engine):
            return engine
        reasons += missing_tools(_HELPERS[name], environment) or [f"`{name} info` fails"]
    raise KindError(f"no container engine answers ({', '.join(reasons)}): {_ADVICE}")


def _answers(engine: Engine) -> bool:
    """A client alone states its version; only a working engine can describe itself."""
    try:
        engine.run("info", "--format", "{{json .}}", timeout_seconds=_ANSWER_SECONDS)
    except KindError:
        return False
    return True


def _environment(
    name: str, environment: Mapping[str, str], cache_directory: Path
) -> dict[str, str]:
    complete = {**environment, PROVIDER_VARIABLE: name}
    if name == "podman" and "CONTAINERS_CONF" not in environment:
        text = containers_conf(HostFacts.read())
        if text is not None:
            complete["CONTAINERS_CONF"] = str(_written_config(cache_directory / "kind", text))
    return complete


def _written_config(directory: Path, text: str) -> Path:
    """A containers.conf with this text; another process may be reading it at this moment."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "containers.conf"
    draft = directory / f".containers.conf-{os.getpid()}"
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, file)
    return file
