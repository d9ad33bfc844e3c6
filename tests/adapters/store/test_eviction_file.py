"""Evictions under way outlive the process that began them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bigfleet.adapters.store import eviction_file
from bigfleet.adapters.store.eviction_file import EvictionFile
from bigfleet.model.errors import BigFleetError
from bigfleet.model.need import NeedKey
from bigfleet.ports.store import Eviction

WAITING = NeedKey("west", "0123456789abcdef", '["default","zone",[]]')
FIRST = Eviction("m-1", "east", 600)
SECOND = Eviction("m-2", "east", 30, WAITING, 1_000_000)


def test_what_has_begun_is_there_after_a_crash(tmp_path: Path) -> None:
    """Each line is with the operating system before `record_started` returns; nothing has to be
    closed.
    """
    file = EvictionFile(tmp_path)
    file.record_started(FIRST)
    file.record_started(SECOND)
    file.record_ended("m-1")
    file.record_ended("m-9")
    assert EvictionFile(tmp_path).load() == [SECOND]


def test_a_line_cut_short_is_no_obstacle(tmp_path: Path) -> None:
    """A process killed in the middle of a write costs that line and no other."""
    EvictionFile(tmp_path).record_started(FIRST)
    path = tmp_path / "evictions.jsonl"
    path.write_bytes(path.read_bytes() + b'{"record_started":{"machine_id":"m-')
    assert EvictionFile(tmp_path).load() == [FIRST]
    assert path.read_bytes().count(b"\n") == 1, "and the next start has cleaned up"


def test_a_newer_eviction_of_a_machine_replaces_the_older(tmp_path: Path) -> None:
    """A machine that is emptied again is emptied for whoever waits now."""
    file = EvictionFile(tmp_path)
    again = Eviction("m-1", "west", 10, WAITING, 5)
    for eviction in (FIRST, again, again):
        file.record_started(eviction)
    assert EvictionFile(tmp_path).load() == [again]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """An eviction that cannot be remembered must not begin."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(BigFleetError, match=r"taken/evictions\.jsonl"):
        EvictionFile(tmp_path / "taken")


def _full(path: Path) -> None:
    """Everything that is written from now on goes to a full disk."""
    path.rename(path.with_name("kept"))
    path.symlink_to("/dev/full")


def test_half_a_line_that_a_full_disk_took_spoils_no_other(tmp_path: Path) -> None:
    """What cannot be written must not begin; what begins later is there after a crash."""
    file, path = EvictionFile(tmp_path), tmp_path / "evictions.jsonl"
    file.record_started(FIRST)
    _full(path)
    with pytest.raises(BigFleetError, match=r"evictions\.jsonl.*No space"):
        file.record_started(SECOND)
    assert file.load() == [FIRST]
    path.unlink()
    (tmp_path / "kept").rename(path)
    path.write_bytes(path.read_bytes() + b'{"record_started":{"machine_id":"m-')
    file.record_started(SECOND)
    assert EvictionFile(tmp_path).load() == [FIRST, SECOND]


def test_an_end_that_could_not_be_written_is_written_with_what_comes_next(tmp_path: Path) -> None:
    file, path = EvictionFile(tmp_path), tmp_path / "evictions.jsonl"
    file.record_started(FIRST)
    _full(path)
    file.record_ended("m-1")
    file.record_started(SECOND)
    assert EvictionFile(tmp_path).load() == [SECOND]


def test_the_file_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody restarts a shard to keep its directory small."""
    monkeypatch.setattr(eviction_file, "_MOST_STALE_LINES", 20)
    file, path = EvictionFile(tmp_path), tmp_path / "evictions.jsonl"
    file.record_started(SECOND)
    for _ in range(100):
        file.record_started(FIRST)
        file.record_ended("m-1")
    assert path.read_bytes().count(b"\n") <= 22
    assert EvictionFile(tmp_path).load() == [SECOND]
