from __future__ import annotations

from pathlib import Path

import pytest

from kind.errors import KindError
from kind.host_tools import PACKAGES, missing_tools, require_tools
from tests.kind.kind_rig import Machine


def test_each_missing_tool_gets_one_line_that_says_what_to_install(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.has("tar")
    lines = missing_tools(("debootstrap", "tar", "runc"), machine.environment)
    assert [line.split()[0] for line in lines] == ["debootstrap", "runc"]
    assert all("install it" in line and "\n" not in line for line in lines)


def test_all_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(KindError) as caught:
        require_tools(tuple(PACKAGES), Machine(tmp_path).environment)
    assert len(str(caught.value).splitlines()) == len(PACKAGES)


def test_nothing_is_asked_for_where_all_is_there(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for tool in PACKAGES:
        machine.has(tool)
    require_tools(tuple(PACKAGES), machine.environment)
