from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.build import free_bytes_at, require_space
from controlplane.errors import BinaryError

GIB = 1 << 30
NEEDS = {Path("/a"): 2 * GIB, Path("/b"): 3 * GIB}


def test_directories_on_one_file_system_share_its_free_space() -> None:
    with pytest.raises(
        BinaryError, match=r"needs 5\.0 GiB, and the file system of /a and /b has 4\.0 GiB free"
    ):
        require_space("building", NEEDS, device=lambda _: 1, free_bytes=lambda _: 4 * GIB)


def test_directories_on_file_systems_of_their_own_need_only_their_own_part() -> None:
    require_space(
        "building", NEEDS, device=lambda path: ord(path.name), free_bytes=lambda _: 3 * GIB
    )


def test_only_the_file_system_that_is_short_is_named() -> None:
    with pytest.raises(BinaryError, match=r"3\.0 GiB, and the file system of /b has 2\.0 GiB free"):
        require_space(
            "building", NEEDS, device=lambda path: ord(path.name), free_bytes=lambda _: 2 * GIB
        )


def test_exactly_enough_is_enough() -> None:
    require_space("building", NEEDS, device=lambda _: 1, free_bytes=lambda _: 5 * GIB)


def test_a_folder_that_is_not_there_yet_counts_where_it_will_be_made(tmp_path: Path) -> None:
    assert free_bytes_at(tmp_path / "not" / "yet") > 0
