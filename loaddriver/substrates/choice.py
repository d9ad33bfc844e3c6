"""Which substrate a run happens on: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from controlplane.request import Binaries
from loaddriver.substrates.base import Substrate
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope


class SubstrateName(StrEnum):
    """What the command line offers."""

    LOCAL = "local"


def make_substrate(
    name: SubstrateName,
    scope: RunScope,
    log_directory: Path,
    binaries: Binaries,
    environment: Mapping[str, str],
) -> Substrate:
    """The substrate of that name, with nothing started yet; call it inside an event loop."""
    match name:
        case SubstrateName.LOCAL:
            return LocalSubstrate(
                scope.run_id, scope.data_directory, log_directory, binaries, environment
            )
