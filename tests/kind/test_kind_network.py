"""Clusters that start at the same time share one network."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kind.network import ensure_network
from tests.kind.kind_rig import Machine

# Like podman: a network exists or not, making one takes a moment, and a second one is refused.
PODMAN = """
case "$1 $2" in
"network inspect") test -e "$HOME/made" ;;
"network create")
    test ! -e "$HOME/made" || exit 125
    i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done
    : > "$HOME/made" ;;
esac
"""


def test_two_clusters_that_start_at_once_make_one_network(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    engine = machine.engine(PODMAN)
    with ThreadPoolExecutor() as pool:
        starts = [pool.submit(ensure_network, engine, tmp_path / "lock") for _ in range(4)]
    assert [start.result() for start in starts] == [None] * 4
    assert machine.calls.count("podman network create --driver=bridge kind") == 1


def test_docker_is_left_to_kind(tmp_path: Path) -> None:
    """It gives the network options of its own, and copes with two that start at once."""
    machine = Machine(tmp_path)
    ensure_network(machine.engine(name="docker"), tmp_path / "lock")
    assert machine.calls == []
