from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.datadir import DataDirectory, root_with_space, sweep
from loaddriver.substrates.reaper.cleanup import RUN_VARIABLE
from tests.support.substrates import SLEEPER


def test_the_directory_of_a_living_run_survives_a_sweep(tmp_path: Path) -> None:
    data = DataDirectory.create("alive", tmp_path)
    assert sweep([tmp_path]) == []
    assert data.path.is_dir()
    data.close()


def test_what_a_power_cut_left_is_swept_with_its_processes(tmp_path: Path) -> None:
    """Nobody holds its marker: the directory goes, and so does whoever still runs for it."""
    data = DataDirectory.create("orphan", tmp_path)
    (data.path / "etcd").mkdir()
    data.close()
    with subprocess.Popen(SLEEPER, env={RUN_VARIABLE: "orphan"}, stdout=subprocess.DEVNULL) as left:
        ((run_id, report),) = sweep([tmp_path])
        assert left.wait(2) == -signal.SIGKILL
    assert (run_id, report.ended, report.removed) == ("orphan", 1, 1)
    assert not data.path.exists()


def test_a_directory_without_a_marker_is_none_of_our_business(tmp_path: Path) -> None:
    (tmp_path / f"bigfleet-{os.getuid()}-notes").mkdir()
    assert sweep([tmp_path]) == []
    assert (tmp_path / f"bigfleet-{os.getuid()}-notes").is_dir()


def test_only_its_owner_may_enter_a_data_directory(tmp_path: Path) -> None:
    """It holds tokens, and sockets to databases that ask for no password."""
    data = DataDirectory.create("private", tmp_path)
    assert data.path.stat().st_mode & 0o777 == 0o700
    data.discard()
    assert not data.path.exists()


@pytest.mark.parametrize("run_id", ["", "../escape", "two words", "x" * 61])
def test_a_run_id_that_is_no_file_name_is_refused(run_id: str, tmp_path: Path) -> None:
    with pytest.raises(SubstrateError, match="run id"):
        DataDirectory.create(run_id, tmp_path)


def test_a_machine_without_room_is_told_where_to_make_some(tmp_path: Path) -> None:
    """A root that is missing counts as full; the first that will do is taken."""
    with pytest.raises(SubstrateError, match="free some space"):
        root_with_space([tmp_path / "missing"])
    assert root_with_space([tmp_path / "missing", Path("/tmp")]) == Path("/tmp")
