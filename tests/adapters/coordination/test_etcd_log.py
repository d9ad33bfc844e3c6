"""etcd's log is rotated, and its tail is readable."""

from __future__ import annotations

import json
from pathlib import Path

from bigfleet.adapters.coordination import etcd_log


def contains(msg: str, error: str) -> str:
    """A line as etcd writes it when it gives up."""
    trace = "runtime.main\n\truntime/proc.go:290" * 50
    return json.dumps({"level": "fatal", "msg": msg, "error": error, "stacktrace": trace}) + "\n"


def test_a_long_log_is_rotated_while_etcd_appends(tmp_path: Path) -> None:
    """One older file is kept; a short log is not rotated."""
    log = tmp_path / "etcd.log"
    with log.open("a") as etcd:
        etcd.write("early\n")
        etcd.flush()
        etcd_log.rotate(log)
        assert log.read_text() == "early\n"
        etcd.write("x" * etcd_log.MAX_BYTES)
        etcd.flush()
        etcd_log.rotate(log)
        etcd.write("late\n")
    assert log.read_text() == "late\n"
    assert (tmp_path / "etcd.log.1").read_text().startswith("early\n")


def test_a_full_disk_loses_the_rotated_part_only(tmp_path: Path) -> None:
    """The coordinator rotates it and must survive a full disk."""
    log = tmp_path / "etcd.log"
    (tmp_path / "etcd.log.1").symlink_to("/dev/full")
    log.write_text("x" * (etcd_log.MAX_BYTES + 1))
    etcd_log.rotate(log)
    assert log.stat().st_size == 0
    assert not (tmp_path / "etcd.log.1").exists()
    etcd_log.rotate(tmp_path / "no such directory" / "etcd.log")


def test_the_tail_has_distinct_messages_without_stack_traces(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_text(contains("bootstrap failed", "member count is unequal") * 3 + "killed\n")
    assert etcd_log.tail(log) == "\n  bootstrap failed: member count is unequal\n  killed"


def test_a_long_message_keeps_its_end(tmp_path: Path) -> None:
    """etcd lists all members before the cause."""
    log = tmp_path / "etcd.log"
    log.write_text(contains("discovery failed", "members: " + "a," * 2000 + " unequal"))
    words = etcd_log.tail(log)
    assert words.endswith(" unequal")
    assert len(words) < 500


def test_an_empty_log_is_reported_as_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert etcd_log.tail(tmp_path / "empty") == " (nothing)"
    assert "unreadable" in etcd_log.tail(tmp_path / "missing")


def test_messages_of_an_earlier_process_are_ignored(tmp_path: Path) -> None:
    """After a rotation all messages are newer."""
    log = tmp_path / "etcd.log"
    log.write_text("removed\n")
    assert etcd_log.contains(log, 0, "removed")
    assert not etcd_log.contains(log, len("removed\n"), "removed")
    assert etcd_log.contains(log, 1000, "removed")
