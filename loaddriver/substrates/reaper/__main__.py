"""Wait for the end of a run, however it ends, then clean up.

`python -m loaddriver.substrates.reaper RUN_ID DIRECTORY...`, with a pipe from the runner as
standard input: its end of file means that the runner has finished, failed or been killed. The
process also inherits the run's locks, so that they are free only once it is done.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from loaddriver.substrates.reaper.cleanup import clean

_DEADLINE_SECONDS = 20.0


def main(arguments: list[str]) -> int:
    """Run the reaper; return 0 if nothing of the run is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    run_id, *directories = arguments
    _say("watching")
    while sys.stdin.buffer.read(1):
        pass
    report = clean(run_id, [Path(directory) for directory in directories], _DEADLINE_SECONDS)
    _say(report.sentence(run_id))
    return 1 if report.survivors or report.refused else 0


def _say(line: str) -> None:
    # The runner may be gone: that is the purpose of the reaper.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.write(f"{line}\n")
            stream.flush()


if __name__ == "__main__":
    # Skip the flush at exit, which fails on pipes without a reader.
    os._exit(main(sys.argv[1:]))
