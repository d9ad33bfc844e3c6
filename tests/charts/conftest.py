"""The helm that the charts are tested with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controlplane.locate import locate
from controlplane.pins import HELM, OPTIONAL_MODULES
from controlplane.request import request_from
from tests.charts.helm_rig import Helm


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The pinned helm with a home of its own; without it the test is skipped."""
    found = locate(request_from(os.environ), lambda _: None, [OPTIONAL_MODULES[HELM]])
    if HELM not in found:
        pytest.skip(f"no {HELM}: run `python -m controlplane get --also {HELM}`")
    home: Path = tmp_path_factory.mktemp("helm")
    return Helm(found[HELM].path, home)
