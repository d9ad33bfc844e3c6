"""Operating systems and architectures, by the names that Go has for them."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.errors import BinaryError

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Platform:
    """An operating system and an architecture, named as in Go ("linux", "amd64")."""

    operating_system: str
    architecture: str

    def __str__(self) -> str:
        return f"{self.operating_system}-{self.architecture}"


def platform_named(system: str, machine: str) -> Platform:
    """The platform of an operating system's own names for it ("Linux", "x86_64")."""
    architecture = _ARCHITECTURES.get(machine.lower())
    operating_system = system.lower()
    if architecture is None or operating_system not in ("linux", "darwin"):
        raise BinaryError(
            f"no control plane binaries for {system} on {machine}: "
            "use Linux or macOS on x86-64 or arm64"
        )
    return Platform(operating_system, architecture)
