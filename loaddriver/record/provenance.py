"""What a result came from: code, inputs, binaries and the machine."""

from __future__ import annotations

import msgspec


class MachineIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The machine, and how fast it was when the run began.

    `id` is a digest: equal for runs of one machine, and no secret. `calibration_seconds` is the
    CPU time of a fixed task, the shortest of several.
    """

    id: str
    calibration_seconds: float


class ProviderUsed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A provider that was not the harness's, by its address and its own name.

    `machines` is the number of free ones that it listed before the run. `cpu_measured` says that it
    ran on this machine, so that its CPU is known.
    """

    address: str
    name: str
    machines: int
    cpu_measured: bool


class Provenance(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a result came from; digests are SHA-256 in hexadecimal.

    `revision` is of the system under test: "", and `dirty` null, if that is not a checkout; a dirty
    one has uncommitted changes, which the digests of `code` tell apart. `inputs` are plan, profile,
    gates and catalog, and the machines where they are not the profile's; `dependencies` is of all
    packages of the harness with their versions, `binaries` has a file's digest or an image's
    reference by component, `provider` is one that was not the harness's: its version is not known,
    as the API has none.
    """

    revision: str
    dirty: bool | None
    code: dict[str, str]
    inputs: dict[str, str]
    dependencies: str
    binaries: dict[str, str]
    machine: MachineIdentity
    provider: ProviderUsed | None = None


def provider_of(found: Provenance | None) -> ProviderUsed | None:
    """The provider that was not the harness's; None if it was, or if nothing is known."""
    return None if found is None else found.provider
