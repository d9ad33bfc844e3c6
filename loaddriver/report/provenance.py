"""The page's section on what a result came from."""

from __future__ import annotations

from collections.abc import Mapping

from loaddriver.record.provenance import Provenance
from loaddriver.report import formatting

_SHOWN_DIGITS = 12


def revision(found: Provenance | None) -> str:
    """The revision in short, with a mark if something differs from it."""
    if found is None or not found.revision:
        return formatting.ABSENT
    return f"{found.revision[:_SHOWN_DIGITS]}{' + changes' if found.dirty else ''}"


def rows(found: Provenance) -> list[tuple[str, str]]:
    """Each digest in short; summary.json has them whole."""
    return [
        ("Revision", revision(found)),
        *_digests("code of {}", found.code),
        *_digests("{}", found.inputs),
        ("installed packages", _short(found.dependencies)),
        *_digests("{}", found.binaries),
        *_provider(found),
        ("Machine", found.machine.id),
        ("A fixed task took", f"{1000 * found.machine.calibration_seconds:.1f}\u202fms of CPU"),
    ]


def _provider(found: Provenance) -> list[tuple[str, str]]:
    """A provider that was not the harness's."""
    if found.provider is None:
        return []
    named = f"{found.provider.name or 'without a name'} at {found.provider.address}"
    listed = f"{formatting.count(found.provider.machines)} machines"
    return [("Provider", f"{named}, {listed}")]


def _digests(name: str, found: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name.format(what), _short(digest)) for what, digest in found.items()]


def _short(digest: str) -> str:
    """The beginning of a digest; an image's reference stays whole."""
    return digest[:_SHOWN_DIGITS] if digest.isalnum() else digest
