"""The prerequisites of kind clusters: tools, node image, images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controlplane.errors import BinaryUsageError
from controlplane.pins import COMPONENTS, PINNED_MODULES
from controlplane.request import BinaryRequest
from kind.errors import KindError, KindUsageError
from kind.images.builder import Image
from kind.images.resolve import resolve_image
from kind.setup import Setup, prepare
from loaddriver.substrates.base import SubstrateError


@dataclass(frozen=True)
class Prerequisites:
    """A working engine, kind, the node image, and the images of pods."""

    setup: Setup
    bigfleet: Image
    kwok: Image

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of the control plane's components, as far as known before a cluster runs."""
        pinned = {name: module.version for module in PINNED_MODULES for name in module.packages}
        stated = {**self.setup.node_image.versions, "kwok": pinned["kwok"]}
        return {name: stated[name] for name in COMPONENTS if name in stated}


def obtain(request: BinaryRequest, progress: Callable[[str], None]) -> Prerequisites:
    """Provide all prerequisites; a build blocks for minutes.

    Raises SubstrateError if a prerequisite is missing, BinaryUsageError for an invalid value.
    """
    try:
        setup = prepare(request, progress)
        engine = setup.tools.engine
        bigfleet, kwok = (
            resolve_image(name, request, engine, progress) for name in ("bigfleet", "kwok")
        )
        return Prerequisites(setup, bigfleet, kwok)
    except KindError as error:
        raise SubstrateError(str(error)) from error
    except KindUsageError as error:
        raise BinaryUsageError(str(error)) from error
