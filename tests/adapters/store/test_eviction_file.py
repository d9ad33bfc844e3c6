"""Evictions in progress outlive the process that started them."""

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


def test_started_evictions_survive_a_crash(tmp_path: Path) -> None:
    """Each line is with the operating system before `record_started` returns; nothing has to be
    closed.
    """
    file = EvictionFile(tmp_path)
    file.record_started(FIRST)
    file.record_started(SECOND)
    file.record_ended("m-1")
    file.record_ended("m-9")
    assert EvictionFile(tmp_path).load() == [SECOND]


def test_a_truncated_line_is_skipped(tmp_path: Path) -> None:
    """A process killed in the middle of a write costs that line and no other."""
    EvictionFile(tmp_path).record_started(FIRST)
    path = tmp_path / "evictions.jsonl"
    path.write_bytes(path.read_bytes() + b'{"started":{"machine_id":"m-')
    assert EvictionFile(tmp_path).load() == [FIRST]
    assert path.read_bytes().count(b"\n") == 1, "and the next start has cleaned up"


def test_a_newer_eviction_of_a_machine_replaces_the_older(tmp_path: Path) -> None:
    """A second eviction of a machine is for another need."""
    file = EvictionFile(tmp_path)
    again = Eviction("m-1", "west", 10, WAITING, 5)
    for eviction in (FIRST, again, again):
        file.record_started(eviction)
    assert EvictionFile(tmp_path).load() == [again]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """An eviction that cannot be stored must not start."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(BigFleetError, match=r"taken/evictions\.jsonl"):
        EvictionFile(tmp_path / "taken")


def _full(path: Path) -> None:
    """From now on the disk is full."""
    path.rename(path.with_name("kept"))
    path.symlink_to("/dev/full")


def test_half_a_line_on_a_full_disk_damages_no_other(tmp_path: Path) -> None:
    """An eviction that cannot be written does not start; later ones survive a crash."""
    file, path = EvictionFile(tmp_path), tmp_path / "evictions.jsonl"
    file.record_started(FIRST)
    _full(path)
    with pytest.raises(BigFleetError, match=r"evictions\.jsonl.*No space"):
        file.record_started(SECOND)
    assert file.load() == [FIRST]
    path.unlink()
    (tmp_path / "kept").rename(path)
    path.write_bytes(path.read_bytes() + b'{"started":{"machine_id":"m-')
    file.record_started(SECOND)
    assert EvictionFile(tmp_path).load() == [FIRST, SECOND]


def test_an_end_that_could_not_be_written_is_written_with_the_next_line(tmp_path: Path) -> None:
    file, path = EvictionFile(tmp_path), tmp_path / "evictions.jsonl"
    file.record_started(FIRST)
    _full(path)
    file.record_ended("m-1")
    file.record_started(SECOND)
    assert EvictionFile(tmp_path).load() == [SECOND]


def test_the_file_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is bounded without a restart."""
    monkeypatch.setattr(eviction_file, "_MAX_STALE_LINES", 20)
    file, path = EvictionFile(tmp_path), tmp_path / "evictions.jsonl"
    file.record_started(SECOND)
    for _ in range(100):
        file.record_started(FIRST)
        file.record_ended("m-1")
    assert path.read_bytes().count(b"\n") <= 22
    assert EvictionFile(tmp_path).load() == [SECOND]
