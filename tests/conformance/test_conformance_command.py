"""`bigfleet conformance` over a process: the guide's example, its report, and its errors."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from bigfleet.api.auth import issuing
from bigfleet.api.auth.identity import Principal
from bigfleet.conformance.subject import Bounds
from tests.conformance.example import PATH
from tests.support.ports import free_address

DAY = timedelta(days=1)


def conformance(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bigfleet", "conformance", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[tuple[str, str, str]]:
    """The example at an address, by certificates; the command that kills and restarts it."""
    names = [Principal("provider", "shop"), Principal("admin"), Principal("readonly")]
    issued = issuing.issue(tmp_path / "certs", names, DAY)
    own, admin, _ = (str(issued[name].directory) for name in names)
    address, pid = free_address(), tmp_path / "pid"
    run = shlex.join([sys.executable, str(PATH), address, str(tmp_path / "machines.db"), own])
    script = tmp_path / "restart.sh"
    script.write_text(
        f"test ! -e {pid} || kill -9 $(cat {pid})\n"
        f"{run} >> {tmp_path}/log 2>&1 &\n"
        f"echo $! > {pid}\n"
    )
    restart = f"sh {script}"
    subprocess.run(shlex.split(restart), check=True)
    asyncio.run(_listens(address))
    yield address, admin, restart
    os.kill(int(pid.read_text()), signal.SIGKILL)


async def _listens(address: str) -> None:
    host, port = address.rsplit(":", 1)
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def test_the_guides_example_conforms(restartable: tuple[str, str, str], tmp_path: Path) -> None:
    """Over mutual TLS, crashes included; the reports say the same as the exit code."""
    address, admin, restart = restartable
    junit = tmp_path / "junit.xml"
    flags = ["--target", address, "--identity", admin, "--restart-command", restart]
    flags += ["--answer-seconds", "3", "--state-seconds", "60"]  # the machine may be busy
    done = conformance(*flags, "--output", "json", "--junit", str(junit))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["conforms"]
    assert report["leftover_machines"] == {}
    assert {check["outcome"] for check in report["checks"]} == {"passed"}
    suite = Xml.parse(junit).getroot()[0]
    assert suite.get("failures") == suite.get("skipped") == "0"
    assert suite.get("tests") == str(len(report["checks"]))


def test_an_unauthorized_identity_is_not_a_failure_of_the_provider(
    restartable: tuple[str, str, str],
) -> None:
    """No check runs; the error names the identity that is needed."""
    address, admin, _ = restartable
    looking = str(Path(admin).parent / "readonly")
    done = conformance("--target", address, "--identity", looking)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not done.stdout
    assert "bigfleet://readonly may not call" in done.stderr
    assert "use an admin's" in done.stderr


def test_an_unwritable_report_is_rejected_before_anything_is_created(tmp_path: Path) -> None:
    """A whole run would be wasted."""
    done = conformance(
        "--builtin", "--insecure", "--junit", str(tmp_path / "nowhere" / "junit.xml")
    )
    assert done.returncode == 2
    assert "is not in an existing directory" in done.stderr
    assert not done.stdout


def test_the_help_states_the_time_limits() -> None:
    """The defaults in the help are the ones in use."""
    text = " ".join(conformance("--help").stdout.split())
    for meaning, seconds in (
        ("starts an operation", Bounds.answer),
        ("its final state", Bounds.state),
        ("after its grace period", Bounds.drain),
    ):
        assert f"{meaning} (default: {seconds:g})" in text


def test_the_example_is_short() -> None:
    """About 200 lines, as the guide says."""
    assert len(PATH.read_text().splitlines()) < 225


def test_an_unreachable_address_is_reported() -> None:
    """Exit code 1, and no traceback."""
    done = conformance("--target", "127.0.0.1:1", "--insecure")
    assert done.returncode == 1
    assert "the provider at 127.0.0.1:1 cannot be checked" in done.stderr
    assert "Traceback" not in done.stderr


def test_plaintext_must_be_chosen() -> None:
    """Neither an identity nor --insecure is a usage error that names both."""
    done = conformance("--target", "127.0.0.1:1")
    assert done.returncode == 2
    assert "--identity --insecure is required" in done.stderr
