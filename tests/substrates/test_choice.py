"""What a substrate has not is refused before anything is fetched."""

from __future__ import annotations

import pytest

from controlplane.request import request_from
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.choice import SubstrateName, obtain_prerequisites


def test_kind_is_for_whole_runs_alone() -> None:
    """`up`, `hold` and `bare` would need the parts of a run here."""
    told: list[str] = []
    with pytest.raises(SubstrateError, match="whole runs alone: loaddriver run"):
        obtain_prerequisites(SubstrateName.KIND, request_from({"HOME": "/nowhere"}), told.append)
    assert told == []
