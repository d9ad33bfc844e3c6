"""What etcd says stays short on the disk, and readable to people."""

from __future__ import annotations

import json
from pathlib import Path

from bigfleet.adapters.coordination import etcd_log


def contains(msg: str, error: str) -> str:
    """A line as etcd writes it when it gives up."""
    trace = "runtime.main\n\truntime/proc.go:290" * 50
    return json.dumps({"level": "fatal", "msg": msg, "error": error, "stacktrace": trace}) + "\n"


def test_a_long_log_is_put_aside_while_etcd_writes_on(tmp_path: Path) -> None:
    """The last part before is kept as well; a short log stays as it is."""
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


def test_a_full_disk_costs_the_old_part_and_not_the_replica(tmp_path: Path) -> None:
    """Whoever shortens it is the coordinator, which must outlive its disk's being full."""
    log = tmp_path / "etcd.log"
    (tmp_path / "etcd.log.1").symlink_to("/dev/full")
    log.write_text("x" * (etcd_log.MAX_BYTES + 1))
    etcd_log.rotate(log)
    assert log.stat().st_size == 0
    assert not (tmp_path / "etcd.log.1").exists()
    etcd_log.rotate(tmp_path / "no such directory" / "etcd.log")


def test_last_words_are_told_once_and_without_stack_traces(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_text(contains("bootstrap failed", "member count is unequal") * 3 + "killed\n")
    assert etcd_log.tail(log) == "\n  bootstrap failed: member count is unequal\n  killed"


def test_a_long_reason_keeps_its_end(tmp_path: Path) -> None:
    """etcd lists all members first, and then says what is wrong with them."""
    log = tmp_path / "etcd.log"
    log.write_text(contains("discovery failed", "members: " + "a," * 2000 + " unequal"))
    words = etcd_log.tail(log)
    assert words.endswith(" unequal")
    assert len(words) < 500


def test_a_log_without_words_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert etcd_log.tail(tmp_path / "empty") == " (nothing)"
    assert "unreadable" in etcd_log.tail(tmp_path / "missing")


def test_what_an_earlier_member_said_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    """Until the log was shortened: then all that is in it is newer."""
    log = tmp_path / "etcd.log"
    log.write_text("removed\n")
    assert etcd_log.contains(log, 0, "removed")
    assert not etcd_log.contains(log, len("removed\n"), "removed")
    assert etcd_log.contains(log, 1000, "removed")
