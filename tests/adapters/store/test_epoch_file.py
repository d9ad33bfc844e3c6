"""A shard's epoch survives, grows, and is never guessed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bigfleet.adapters.store.epoch_file import EpochFile
from bigfleet.model.errors import BigFleetError


def test_each_start_gets_a_larger_epoch(tmp_path: Path) -> None:
    """The first epoch is 1, and every further start counts one more."""
    assert [EpochFile(tmp_path / "state").next_epoch() for _ in range(3)] == [1, 2, 3]


DAMAGED = [b"", b"seven\n", b"-1\n", b"0\n", b"1 2\n", b"\xff\n", b"9" * 40]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_fatal_and_named(tmp_path: Path, damage: bytes) -> None:
    """The error says which file, what it holds and what to write; the file is left as it was."""
    path = tmp_path / "epoch"
    path.write_bytes(damage)
    with pytest.raises(BigFleetError, match="larger than any that") as error:
        EpochFile(tmp_path).next_epoch()
    assert str(path) in str(error.value)
    assert path.read_bytes() == damage


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A file where the state directory should be ends in a sentence, not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BigFleetError, match="state directory"):
        EpochFile(tmp_path / "file").next_epoch()


def test_file_and_directory_are_flushed_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new content is on the disk before it takes the name, and the name before it is used."""
    steps: list[str] = []
    flush, rename = os.fsync, Path.replace

    def flushed(descriptor: int) -> None:
        steps.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        flush(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", renamed)
    EpochFile(tmp_path).next_epoch()
    assert steps == [str(tmp_path / "epoch.new"), "rename", str(tmp_path)]


def test_a_crash_before_the_rename_costs_nothing(tmp_path: Path) -> None:
    """A half-written successor beside the file is ignored and overwritten."""
    EpochFile(tmp_path).next_epoch()
    (tmp_path / "epoch.new").write_bytes(b"gar")
    assert EpochFile(tmp_path).next_epoch() == 2
