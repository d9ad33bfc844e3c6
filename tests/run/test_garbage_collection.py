"""No full garbage collection runs while the load is played."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from loaddriver.run.measurement import full_collections_paused


@pytest.fixture
def collected() -> Iterator[list[int]]:
    """The generations that are collected, in order. Python looks at the oldest only once a quarter
    of it is new: what other tests have left in this process is set aside.
    """
    generations: list[int] = []
    gc.freeze()
    gc.collect()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.callbacks.append(note)
    yield generations
    gc.callbacks.remove(note)
    gc.unfreeze()


def records(count: int) -> list[list[int]]:
    """Long-lived objects, as a run's records are."""
    return [[number] for number in range(count)]


def test_the_old_generation_is_not_collected_while_young_ones_are(collected: list[int]) -> None:
    """Outside it is collected for the same objects, or this would prove nothing."""
    kept = records(300_000)
    assert 2 in collected
    with full_collections_paused():
        collected.clear()
        kept += records(300_000)
        assert 2 not in collected
        assert 0 in collected
        assert 1 in collected


def test_the_thresholds_are_restored() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), full_collections_paused():
        raise KeyError
    assert gc.get_threshold() == before
