"""Full garbage collections stay short however much a role remembers, and none delays imports."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from bigfleet import gc_pauses
from bigfleet.gc_pauses import bounded_gc_pauses, no_gc


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every collection counts as a long one, and there are none but those of the test; afterwards
    nothing is set aside.
    """
    monkeypatch.setattr(gc_pauses, "LONG_PAUSE_SECONDS", -1.0)
    gc.disable()
    with bounded_gc_pauses():
        yield
    gc.enable()


def test_what_outlived_a_long_collection_is_set_aside() -> None:
    """The next collections look at what is newer."""
    gc.collect()
    assert gc.get_freeze_count() > 0


def _doubled() -> list[list[int]]:
    """As many objects as are set aside, and some more, and collections until that is noticed."""
    gc.collect()
    kept = [[number] for number in range(gc.get_freeze_count() + 10_000)]
    for _ in range(gc_pauses.COUNTED_EVERY - 1):
        assert gc.get_freeze_count() > 0
        gc.collect()
    return kept


def test_what_is_set_aside_is_looked_at_again_once_it_has_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cycles that have become garbage meanwhile do not pile up for ever. That it has doubled is
    noticed some collections later.
    """
    monkeypatch.setattr(gc_pauses, "MANY", 10)
    kept = _doubled()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gc.get_freeze_count() > len(kept)


def test_a_small_process_that_grows_is_not_stopped() -> None:
    """What a thousand clusters need is no garbage, and to look through it takes a second."""
    kept = _doubled()
    assert gc.get_freeze_count() > len(kept)


def test_young_collections_set_nothing_aside() -> None:
    """They see only what is new."""
    gc.collect(0)
    assert gc.get_freeze_count() == 0


def test_nothing_is_collected_while_modules_are_imported() -> None:
    """Afterwards it is as it was before."""
    gc.enable()
    with no_gc():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    with no_gc():
        pass
    assert not gc.isenabled()
