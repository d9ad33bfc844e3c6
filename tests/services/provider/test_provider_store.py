"""The provider's store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigfleet.model.errors import InvalidInput, Unavailable, UnknownObject
from bigfleet.model.machine import Machine, MachineState
from bigfleet.model.need import Taint
from bigfleet.ports.provider import EPOCHS_SKIPPED, Fence
from bigfleet.services.provider.fencing import FencingToken
from bigfleet.services.provider.lifecycle import Record
from bigfleet.services.provider.store import FILE_NAME, Store
from tests.support.providers import machine


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with three machines."""
    opened = Store(tmp_path)
    slow = Taint("example.com/slow", "", "NoSchedule")
    opened.seed(machine(f"m-{n}", taints=(slow,) if n == 1 else ()) for n in range(3))
    yield opened
    opened.close()


def reopened(store: Store, folder: Path) -> Store:
    """The store as the next process finds it."""
    store.close()
    return Store(folder)


def changed(record: Record) -> Record:
    """Another state of the same machine, every field that can change changed."""
    fate = replace(
        record.machine,
        state=MachineState.DRAINING,
        host="h",
        cluster="c",
        last_error="e",
        shard_metadata={"k": "ü\0"},
    )
    return Record(fate, 7, 1.5, 2.5, b"\x00blob")


def test_everything_survives_a_restart(store: Store, tmp_path: Path) -> None:
    """Machines, operations, due times, revisions and the store's own id come back equal."""
    store.save(changed(store.get("m-1")), Fence("s", 3, 4))
    before, revision, identity = list(store), store.revision, store.id
    after = reopened(store, tmp_path)
    assert (list(after), after.revision, after.id) == (before, revision, identity)
    assert after.get("m-1") == replace(changed(after.get("m-1")), revision=4)
    assert after.fencing_token("s", "m-1") == FencingToken(3, 4)
    assert after.fencing_token("s", "m-2") is None
    after.close()


def test_a_fencing_token_is_saved_without_a_change(store: Store, tmp_path: Path) -> None:
    """A rejected order leaves its fencing token and no new revision."""
    store.save(None, Fence("s", 9, 1), "m-0")
    after = reopened(store, tmp_path)
    assert (after.fencing_token("s", "m-0"), after.revision) == (FencingToken(9, 1), 3)
    after.close()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 2), max_size=8), st.integers(0, 12))
def test_changes_since_a_revision_are_exactly_those_after_it(
    store: Store, changes: list[int], back: int
) -> None:
    """Each machine changed later is listed once, in the order of its last change."""
    since = max(0, store.revision - back)
    before = {r.machine.id for r in store if r.revision > since}
    for number in changes:
        store.save(store.get(f"m-{number}"))
    listed = list(store.changed_after(since))
    assert {r.machine.id for r in listed} == before | {f"m-{n}" for n in changes}
    assert [r.revision for r in listed] == sorted(r.revision for r in listed)
    assert all(r.revision > since for r in listed)


def test_an_unknown_machine_is_named(store: Store) -> None:
    """The id that was asked for is in the sentence."""
    with pytest.raises(UnknownObject, match="'m-9' is not known"):
        store.get("m-9")


def test_one_provider_at_a_time(store: Store, tmp_path: Path) -> None:
    """A second one is rejected."""
    assert len(store) == 3
    with pytest.raises(InvalidInput, match="in use by another provider"):
        Store(tmp_path)


def test_a_failed_seed_leaves_nothing(tmp_path: Path) -> None:
    """An inventory that is wrong in its last line seeds no machine at all."""

    def broken() -> Iterator[Machine]:
        yield machine("m-0")
        raise InvalidInput("line 2", "x", "is wrong")

    store = Store(tmp_path)
    with pytest.raises(InvalidInput):
        store.seed(broken())
    after = reopened(store, tmp_path)
    assert (len(after), after.revision) == (0, 0)
    after.close()


def test_a_foreign_file_is_rejected(tmp_path: Path) -> None:
    """It is not overwritten."""
    (tmp_path / FILE_NAME).write_bytes(b"somebody else's file" * 100)
    with pytest.raises(InvalidInput, match="cannot be read as a provider's state"):
        Store(tmp_path)


def test_a_store_of_another_format_is_rejected(store: Store, tmp_path: Path) -> None:
    """Its format's number is in the sentence."""
    store.close()
    other = sqlite3.connect(tmp_path / FILE_NAME)
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(InvalidInput, match="format 99, not 3"):
        Store(tmp_path)


def test_a_store_of_an_earlier_format_is_migrated(store: Store, tmp_path: Path) -> None:
    """Its kinds of machines say nothing of taints, and their machines have none; no shard has been
    given an epoch.
    """
    before = {record.machine.id: record for record in store}
    store.close()
    other = sqlite3.connect(tmp_path / FILE_NAME)
    ((blob,),) = other.execute("SELECT description FROM kinds WHERE number = 1").fetchall()
    kind = json.loads(blob)
    del kind["taints"]
    other.execute("UPDATE kinds SET description = ? WHERE number = 1", (json.dumps(kind).encode(),))
    other.execute("UPDATE machines SET kind = 1")
    other.execute("DROP TABLE epochs")
    other.execute("PRAGMA user_version = 1")
    other.commit()
    other.close()
    migrated = Store(tmp_path)
    assert {r.machine.id: r.machine for r in migrated} == {
        name: replace(record.machine, taints=()) for name, record in before.items()
    }
    migrated.save(migrated.get("m-2"), Fence("s", 1, 1))
    assert migrated.claim_epoch("s", 1) == 1 + EPOCHS_SKIPPED
    again = reopened(migrated, tmp_path)
    assert (again.revision, again.claimed_epoch("s")) == (4, 1 + EPOCHS_SKIPPED)
    again.close()


def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    """The error names the path."""
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be used"):
        Store(tmp_path / "file")


def test_a_failed_write_changes_nothing(store: Store) -> None:
    """Reads return the saved state."""
    before = store.get("m-0")
    store.close()
    with pytest.raises(Unavailable, match="cannot be written"):
        store.save(changed(before))
    assert store.get("m-0") == before
