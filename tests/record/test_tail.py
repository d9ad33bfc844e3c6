"""The tail of a growing file gives each whole line once, whatever the writer does."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from loaddriver.record.tail import Tail


def drained(tail: Tail) -> None:
    while tail.read():
        pass


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def tail_of(path: Path) -> tuple[Tail, list[bytes]]:
    lines: list[bytes] = []
    return Tail(path, lines.extend), lines


@settings(max_examples=60)
@given(
    st.lists(st.binary(min_size=1, max_size=9).filter(lambda b: b"\n" not in b), max_size=12),
    st.lists(st.integers(min_value=1, max_value=12), max_size=20),
)
def test_lines_are_the_same_however_the_writer_cuts_them(
    lines: list[bytes], cuts: list[int]
) -> None:
    """A line written in pieces is delivered once, whole."""
    content = b"".join(line + b"\n" for line in lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.log"
        tail, seen = tail_of(path)
        for cut in cuts:
            append(path, content[:cut])
            content = content[cut:]
            drained(tail)
        append(path, content)
        tail.finish()
    assert seen == lines


def test_a_file_may_come_later(tmp_path: Path) -> None:
    """A log that the server has not opened yet is no error."""
    tail, seen = tail_of(tmp_path / "audit.log")
    assert not tail.read()
    append(tmp_path / "audit.log", b"one\n")
    tail.finish()
    assert seen == [b"one"]


def test_a_last_line_without_end_is_delivered_at_the_end(tmp_path: Path) -> None:
    """A line cut off for good is handed on, so that its reader can count it."""
    append(tmp_path / "audit.log", b'one\n{"half')
    tail, seen = tail_of(tmp_path / "audit.log")
    drained(tail)
    assert seen == [b"one"]
    tail.finish()
    assert seen == [b"one", b'{"half']


def test_a_rotated_file_is_read_to_its_end_before_the_new_one(tmp_path: Path) -> None:
    """What was written between the last reading and the rotation is not lost."""
    path = tmp_path / "audit.log"
    append(path, b"one\n")
    tail, seen = tail_of(path)
    drained(tail)
    append(path, b"two\n")
    path.rename(tmp_path / "audit-1.log")
    append(path, b"three\n")
    tail.finish()
    assert seen == [b"one", b"two", b"three"]
    assert tail.restarts == 0


def test_a_file_cut_back_is_counted(tmp_path: Path) -> None:
    """Lines may be lost when a log shrinks; the tail says so and goes on."""
    path = tmp_path / "audit.log"
    append(path, b"one\ntwo\n")
    tail, seen = tail_of(path)
    drained(tail)
    os.truncate(path, 0)
    append(path, b"new\n")
    tail.finish()
    assert seen == [b"one", b"two", b"new"]
    assert tail.restarts == 1
