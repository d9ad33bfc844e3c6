"""Decisions on a checkpoint: what they would be if prices, zones or machines were others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.errors import InvalidInput
from bigfleet.model.group import group_of_text
from bigfleet.model.machine import Machine, MachineState
from bigfleet.model.need import Need, Operator, Requirement, profile, sizes_of
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.demand.needs import NeedsTable
from bigfleet.services.shard.fleet.backoff import FailureBackOff
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.interning import Numbers
from bigfleet.services.shard.replay import checkpoint, decisions
from bigfleet.services.shard.replay.changes import Changes, changed
from bigfleet.services.shard.replay.checkpoint import Checkpoint
from bigfleet.services.shard.replay.decisions import copies_that_fit, decisions_on, difference
from tests.engine.engine_random import random_cycle_memory, unfolded_case
from tests.support.shard_rig import machine, need, rollup

NOW = 10_000.0
SETTINGS = EngineConfig()
_S = MachineState


def inputs_of(machines: Sequence[Machine], *needs: Need) -> CycleInputs:
    """What a shard decides on that has these machines, and these needs of cluster east."""
    numbers = Numbers()
    inventory, table = Inventory(numbers), NeedsTable(numbers)
    table.replace(rollup("east", *needs), NOW)
    inventory.apply(machines, NOW)
    fleet, wants = inventory.snapshot([])
    return CycleInputs(fleet, inventory.ids, wants, table.demand(), NOW, CycleMemory())


def offers(instance_type: str, count: int, price: float, zone: str = "a") -> list[Machine]:
    """Machines that can be bought, two to a rack."""
    return [
        machine(
            f"{instance_type}-{zone}-{number}",
            _S.SPECULATIVE,
            instance_type=instance_type,
            zone=zone,
            price_per_hour=price,
            labels={"topology.bigfleet/rack": f"rack-{zone}{number // 2}"},
        )
        for number in range(count)
    ]


def anywhere(machines: int, group: str = "", same: str = "") -> Need:
    """A need for so many machines, in whatever zone; in one domain of `same`."""
    together = [Requirement(same, Operator.SAME)] if same else []
    sizes = sizes_of([({"cpu": 4000}, machines)])
    return Need(profile(together, (), 0, 1, 1), sizes, group_of_text(group))


def bought(found: decisions.Decisions) -> list[str]:
    """The instance types of the machines bought."""
    return sorted(order.instance_type for order in found.orders if order.action == "Provision")


@pytest.mark.parametrize("seed", range(8))
def test_a_checkpoint_gives_the_decision_of_the_shard_that_wrote_it(seed: int) -> None:
    """Byte for byte: machines, needs, what the engine remembers and settings are as they were."""
    fleet, asked = unfolded_case(seed)
    memory, named = random_cycle_memory(seed, fleet, asked), inputs_of(offers("m", 40, 1.0))
    inputs = CycleInputs(fleet, named.machine_ids, named.wants, asked, NOW, memory)
    saved = checkpoint.encode(Checkpoint("shard-7", inputs, SETTINGS))
    read = checkpoint.decode(saved, "f")
    assert (read.shard_id, read.settings) == ("shard-7", SETTINGS)
    assert read.inputs.cycle_memory == memory
    assert list(read.inputs.asked.needs) == list(asked.needs)
    assert decisions.written(decisions_on(read.inputs, read.settings)) == decisions.written(
        decisions_on(inputs, SETTINGS)
    )


@pytest.mark.parametrize("content", [b"", b"nothing", b"\x1f\x8b\x08\x00"])
def test_a_file_that_is_no_checkpoint_is_rejected_by_name(content: bytes) -> None:
    """So is a damaged one."""
    with pytest.raises(InvalidInput, match=r"saved\.bin"):
        checkpoint.decode(content, "saved.bin")


def test_a_damaged_checkpoint_is_rejected() -> None:
    """Half of one decides nothing."""
    saved = checkpoint.encode(Checkpoint("s", inputs_of(offers("m", 3, 1.0)), SETTINGS))
    with pytest.raises(InvalidInput, match="saved"):
        checkpoint.decode(saved[: len(saved) // 2], "saved")


_AT_ONCE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from bigfleet.services.shard.replay import checkpoint

content, all_started = Path(sys.argv[1]).read_bytes(), Barrier(8)
sys.setswitchinterval(1e-6)


def shard_id(_):
    all_started.wait()
    return checkpoint.decode(content, "saved").shard_id


with ThreadPoolExecutor(8) as threads:
    print(*threads.map(shard_id, range(8)))
"""


def test_threads_may_decode_the_first_checkpoints_of_a_process_at_once(tmp_path: Path) -> None:
    """As an audit does with those of several shards."""
    inputs = inputs_of(offers("m", 3, 1.0), anywhere(2))
    saved = tmp_path / "saved"
    saved.write_bytes(checkpoint.encode(Checkpoint("s", inputs, SETTINGS)))
    command = [sys.executable, "-c", _AT_ONCE, str(saved)]
    for _ in range(4):
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (ended.returncode, ended.stdout.split()) == (0, ["s"] * 8), ended.stderr


def test_a_price_that_doubles_moves_purchases_to_the_next_type() -> None:
    """The difference names the orders that come and go, and what they cost."""
    inputs = inputs_of([*offers("cheap", 2, 1.0), *offers("dear", 2, 1.5)], anywhere(2))
    before = decisions_on(inputs, SETTINGS)
    now = decisions_on(changed(inputs, Changes(prices={"cheap": 2.0})), SETTINGS)
    assert (bought(before), bought(now)) == (["cheap"] * 2, ["dear"] * 2)
    found = difference(before, now)
    assert {order.instance_type for order in found.removed} == {"cheap"}
    assert {order.instance_type for order in found.added} == {"dear"}
    assert found.dollars_per_hour == 1.0


def test_a_price_alone_changes_no_order() -> None:
    """Orders are compared by what is done; the cost shows what it comes to."""
    inputs = inputs_of(offers("only", 2, 1.0), anywhere(2))
    now = decisions_on(changed(inputs, Changes(prices={"only": 3.0})), SETTINGS)
    found = difference(decisions_on(inputs, SETTINGS), now)
    assert (found.added, found.removed, found.dollars_per_hour) == ([], [], 4.0)


def test_what_ran_in_a_zone_that_is_gone_moves_or_is_short() -> None:
    """Its machines no longer count, whatever their state."""
    running = machine("m-1", _S.CONFIGURED, "east", price_per_hour=1.0)
    inputs = inputs_of([running, *offers("m", 1, 1.0, "b")], anywhere(2))
    assert [o.machine for o in decisions_on(inputs, SETTINGS).orders] == ["m-b-0"]
    now = decisions_on(changed(inputs, Changes(without_zones=frozenset("a"))), SETTINGS)
    assert [short.pods for short in now.short] == [1]
    assert now.dollars_per_hour == 1.0


def test_more_machines_serve_what_was_short() -> None:
    """As many as are needed are bought, and no more."""
    inputs = inputs_of(offers("gpu", 1, 5.0), anywhere(3))
    before = decisions_on(inputs, SETTINGS)
    assert [short.pods for short in before.short] == [2]
    now = decisions_on(changed(inputs, Changes(more_machines={"gpu": 200})), SETTINGS)
    assert bought(now) == ["gpu"] * 3
    [short] = difference(before, now).short_pods.values()
    assert short == (2, 0)


def test_machines_that_are_added_are_in_backoff_for_no_cluster() -> None:
    """A shard's fleet says for each of its own whether it is."""
    inputs = inputs_of(offers("gpu", 1, 5.0), anywhere(3))
    fleet = FailureBackOff().apply_to(inputs.fleet, lambda _: np.empty(0, np.int32), NOW)
    inputs = replace(inputs, fleet=fleet)
    now = decisions_on(changed(inputs, Changes(more_machines={"gpu": 2})), SETTINGS)
    assert bought(now) == ["gpu"] * 3


def test_as_many_gangs_fit_as_there_are_racks_for_them() -> None:
    """Five racks of two machines: one is the gang's own, and one has lost a machine."""
    gang = anywhere(2, "ring", same="topology.bigfleet/rack")
    inputs = inputs_of(offers("m", 9, 1.0), gang)
    assert (
        copies_that_fit(
            inputs,
            SETTINGS,
            f"east/{gang.profile.fingerprint}/ring",
            decisions_on(inputs, SETTINGS),
        )
        == 3
    )
    more = changed(inputs, Changes(more_machines={"m": 1}))
    assert copies_that_fit(more, SETTINGS, "east", decisions_on(more, SETTINGS)) >= 3


def test_none_fits_where_the_need_itself_is_short() -> None:
    """A need that lacks machines does not hide that its copies lack them, too."""
    inputs = inputs_of(offers("m", 1, 1.0), anywhere(3))
    assert copies_that_fit(inputs, SETTINGS, "east", decisions_on(inputs, SETTINGS)) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (Changes(prices={"m7": 2.0}), "--price: 'm7' is no value of .*: m"),
        (Changes(more_machines={"m7": 2}), "--more-machines: 'm7'"),
        (Changes(without_zones=frozenset("z")), "--without-zone: 'z' is no value of .*: a"),
    ],
)
def test_a_change_of_nothing_is_an_error(changes: Changes, words: str) -> None:
    """It names the option, and what there is."""
    with pytest.raises(InvalidInput, match=words):
        changed(inputs_of(offers("m", 2, 1.0)), changes)


def test_an_ambiguous_need_is_an_error() -> None:
    """It says how many are meant, and how to name one."""
    inputs = inputs_of(offers("m", 2, 1.0), need(group="a"), need(group="b"))
    with pytest.raises(InvalidInput, match="names 2 needs; write CLUSTER/PROFILE"):
        copies_that_fit(inputs, SETTINGS, "east", decisions_on(inputs, SETTINGS))
