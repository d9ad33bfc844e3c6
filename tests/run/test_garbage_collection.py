"""Python's collector does not go through all pods' records while the load runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from loaddriver.run.measurement import full_collections_paused


@pytest.fixture
def collected() -> Iterator[list[int]]:
    """The generations that are looked through, as it happens."""
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.callbacks.append(note)
    yield generations
    gc.callbacks.remove(note)


def records(count: int) -> list[list[int]]:
    """Objects that stay, as a run's records do."""
    return [[number] for number in range(count)]


def test_old_objects_are_not_looked_through_while_young_ones_are(collected: list[int]) -> None:
    """Outside they are, for the same objects: else this would show nothing."""
    kept = records(300_000)
    assert 2 in collected
    with full_collections_paused():
        collected.clear()
        kept += records(300_000)
        assert 2 not in collected
        assert 0 in collected
        assert 1 in collected


def test_it_is_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), full_collections_paused():
        raise KeyError
    assert gc.get_threshold() == before
