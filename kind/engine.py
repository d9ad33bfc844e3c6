"""The container engine of this machine, and its environment."""

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
# kind's own variable, with the same meaning here.
PROVIDER_VARIABLE = "KIND_EXPERIMENTAL_PROVIDER"

_ANSWER_SECONDS = 20.0
_PULL_SECONDS = 600.0
# Tools that an engine requires on PATH.
_HELPERS: Mapping[str, tuple[str, ...]] = {"docker": (), "podman": ("iptables", "runc")}
_ADVICE = "install Docker and start it, or install podman (Debian: apt-get install podman runc)"


@dataclass(frozen=True)
class Engine:
    """docker or podman; `environment` is complete, for every child process that uses it."""

    name: str
    path: Path
    environment: Mapping[str, str]

    def run(
        self, *arguments: str, timeout_seconds: float = 60.0, input: IO[bytes] | None = None
    ) -> str:
        """The output of an engine command. Raises KindError with its last lines."""
        command = [str(self.path), *arguments]
        return run(command, self.environment, timeout_seconds, input).decode("utf-8")

    def has_image(self, reference: str) -> bool:
        """Whether the engine's store has the image."""
        try:
            self.run("image", "inspect", "--format", "{{.Id}}", reference)
        except KindError:
            return False
        return True

    def can_pull(self, reference: str, progress: Callable[[str], None]) -> bool:
        """Whether the image exists or was pulled."""
        if self.has_image(reference):
            return True
        progress(f"pulling {reference}")
        try:
            self.run("pull", "--quiet", reference, timeout_seconds=_PULL_SECONDS)
        except KindError as error:
            progress(f"cannot pull {reference}, building one: {error}")
            return False
        return True


def find_engine(environment: Mapping[str, str], cache_directory: Path) -> Engine:
    """The engine in KIND_EXPERIMENTAL_PROVIDER, else the first that responds.

    Raises KindError with a hint if none responds; KindUsageError for a name not in ENGINES.
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
    raise KindError(f"no container engine responds ({', '.join(reasons)}): {_ADVICE}")


def _answers(engine: Engine) -> bool:
    """Whether the engine responds to `info`, which a client without daemon cannot."""
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
    """Write a containers.conf atomically: another process may be reading it."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "containers.conf"
    draft = directory / f".containers.conf-{os.getpid()}"
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, file)
    return file
