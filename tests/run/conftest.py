"""Fixtures shared by the tests of the runner."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.run.burner import Burner


@pytest.fixture
def burner() -> Iterator[Burner]:
    """A process that uses CPU on request."""
    burner = Burner()
    yield burner
    burner.end()
