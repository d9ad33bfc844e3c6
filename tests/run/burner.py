"""Processes that use CPU on request."""

from __future__ import annotations

import subprocess
import sys
import time

_SCRIPT = """
import sys, time
print("begun", flush=True)
for line in sys.stdin:
    until = time.process_time() + float(line)
    while time.process_time() < until:
        pass
    print("burnt", flush=True)
"""


class Burner:
    """A child process that uses CPU on request, and has started by the time it is made."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", _SCRIPT]
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.child.pid
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == "begun\n"

    def burn(self, seconds: float) -> None:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{seconds}\n")
        self.child.stdin.flush()
        assert self.child.stdout.readline() == "burnt\n"

    def end(self) -> None:
        with self.child:
            self.child.kill()


def burn(seconds: float) -> None:
    """Use CPU in this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
