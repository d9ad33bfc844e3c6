"""What a run on kind needs of this machine: tools, node image, images of pods, helm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane import resolve
from controlplane.errors import BinaryUsageError
from controlplane.pins import HELM, OPTIONAL_MODULES
from controlplane.request import BinaryRequest
from kind.errors import KindError, KindUsageError
from kind.images.builder import Image
from kind.images.resolve import resolve_image
from kind.setup import Setup, prepare
from loaddriver.profile.settings import ProfileSettings
from loaddriver.substrates.base import SubstrateError

FLEET_IMAGE, METRICS_SERVER_IMAGE, KARPENTER_IMAGE = "bigfleet", "metrics-server", "karpenter"


@dataclass(frozen=True)
class Prerequisites:
    """A working engine, kind, the node image, the images of pods by name, and helm."""

    setup: Setup
    images: Mapping[str, Image]
    helm: Path


def image_names(settings: ProfileSettings) -> tuple[str, ...]:
    """The images of a run's pods that are built here."""
    wanted = {
        FLEET_IMAGE: settings.on_bigfleet,
        KARPENTER_IMAGE: settings.on_karpenter,
        METRICS_SERVER_IMAGE: settings.resource_metrics,
    }
    return ("loaddriver", "kwok", *(name for name, asked in wanted.items() if asked))


def obtain(
    request: BinaryRequest, progress: Callable[[str], None], images: Sequence[str]
) -> Prerequisites:
    """Provide all prerequisites, and these images; a build blocks for minutes.

    Raises SubstrateError if a prerequisite is missing, BinaryUsageError for an invalid value.
    """
    try:
        setup = prepare(request, progress)
        engine = setup.tools.engine
        built = {name: resolve_image(name, request, engine, progress) for name in images}
        helm = resolve.obtain([OPTIONAL_MODULES[HELM]], request, progress)[HELM].path
        return Prerequisites(setup, built, helm)
    except KindError as error:
        raise SubstrateError(str(error)) from error
    except KindUsageError as error:
        raise BinaryUsageError(str(error)) from error
