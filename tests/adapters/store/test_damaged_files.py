"""A byte that is no text, in any file of a shard's state, ends in a sentence or costs a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from bigfleet.adapters.store.demand_file import DemandFile
from bigfleet.adapters.store.eviction_file import EvictionFile
from bigfleet.adapters.store.ownership_file import OwnershipFile
from bigfleet.adapters.store.removal_file import RemovalFile
from bigfleet.model.errors import BigFleetError
from bigfleet.ports.ownership import OwnershipRecord
from bigfleet.ports.store import Eviction


def damage(path: Path) -> None:
    """Of the cluster's name."""
    content = path.read_bytes()
    assert b"east" in content
    path.write_bytes(content.replace(b"east", b"e\xffst"))


def test_what_the_shard_owns_is_not_guessed(tmp_path: Path) -> None:
    OwnershipFile(tmp_path).save(OwnershipRecord(clusters=frozenset({"east"})))
    damage(tmp_path / "ownership.json")
    with pytest.raises(BigFleetError, match=r"ownership\.json: is not a record"):
        OwnershipFile(tmp_path).load()


def test_the_clusters_to_be_removed_are_not_guessed(tmp_path: Path) -> None:
    RemovalFile(tmp_path).save(["east"])
    damage(tmp_path / "removals.json")
    with pytest.raises(BigFleetError, match=r"removals\.json: is not a list"):
        RemovalFile(tmp_path).load()


def test_a_damaged_eviction_costs_no_other(tmp_path: Path) -> None:
    file = EvictionFile(tmp_path)
    kept = Eviction("m-2", "west", 30, max_cost=0.5)
    file.record_started(Eviction("m-1", "east", 30))
    file.record_started(kept)
    damage(tmp_path / "evictions.jsonl")
    assert EvictionFile(tmp_path).load() == [kept]


def test_demand_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    DemandFile(tmp_path).save({"east": 7})
    damage(tmp_path / "demand.json")
    assert DemandFile(tmp_path).load() == {}
