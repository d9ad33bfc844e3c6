"""What a profile asks for that its substrate has not is refused before anything is fetched."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.request import request_from
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.choice import SubstrateName, obtain_prerequisites


@pytest.mark.parametrize(
    ("asked", "setting"),
    [
        ({"resource_metrics": True}, "metrics: resource"),
        ({"coordinators": 3}, "bigfleet.coordinators: 3"),
    ],
)
def test_kind_names_the_setting_that_only_local_runs_have(
    asked: dict[str, Any], setting: str
) -> None:
    """So that nobody waits for images first."""
    told: list[str] = []
    with pytest.raises(SubstrateError, match=f"{setting}.*use --substrate local"):
        obtain_prerequisites(
            SubstrateName.KIND, request_from({"HOME": "/nowhere"}), told.append, **asked
        )
    assert told == []
