"""The inventory: provider truth in columns, with orders under way laid over it."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api import machine_codec
from bigfleet.engine.decision import ActionType
from bigfleet.engine.snapshot import NONE, Demand, Fleet
from bigfleet.model.group import ADDITIONAL
from bigfleet.model.machine import Machine, MachineState
from bigfleet.model.need import Need, NeedKey, Taint
from bigfleet.services.shard.demand.needs import NeedsTable
from bigfleet.services.shard.fleet.assignment import to_metadata
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.fleet.machine_ids import MachineIds
from bigfleet.services.shard.records.interning import Numbers
from bigfleet.services.shard.records.orders import Order, Orders
from bigfleet.services.shard.records.views import Transition
from bigfleet.services.shard.sessions import updates
from tests.support.shard_rig import machine, need, rollup

_S = MachineState


def inventory(*machines: Machine, now_seconds: float = 0.0) -> Inventory:
    kept = Inventory(Numbers())
    kept.apply(machines, now_seconds)
    return kept


def order(
    action_type: ActionType, machine_id: str, wanted: Need | None = None, cluster: str = ""
) -> Order:
    return Order(action_type, machine_id, cluster, wanted, 0, 0.0)


def fleet(kept: Inventory, *orders: Order, position: int = NONE) -> Fleet:
    seen, wants = kept.snapshot(orders)
    return wants.apply_to(seen, _numbered([NONE] * position + [*range(len(wants.keys))]))


def _numbered(numbers: list[int]) -> Demand:
    """Needs with these numbers."""
    its, cluster = np.array(numbers, np.int32), np.zeros(len(numbers), np.int32)
    return Demand([need()] * len(numbers), cluster, frozenset(), number=its)


def bound(machine_id: str, wanted: Need, cluster: str = "east") -> Machine:
    metadata = to_metadata(wanted)
    return machine(machine_id, _S.CONFIGURED, cluster, shard_metadata=metadata)


def test_machines_that_differ_in_name_only_share_a_flavour() -> None:
    """Hostname labels, and any label that repeats the id, do not multiply flavours."""
    own = {"example.com/asset": "m-1", "kubernetes.io/hostname": "m-1", "rack": "r"}
    others = {"example.com/asset": "m-2", "kubernetes.io/hostname": "m-2", "rack": "r"}
    kept = inventory(machine("m-1", labels=own), machine("m-2", labels=others))
    assert len(fleet(kept).flavours) == 1
    assert "kubernetes.io/hostname" not in fleet(kept).flavours[0].labels
    view = kept.view("m-2")
    assert view is not None
    assert others.items() <= view.machine_class.labels_of("m-2").items()


def test_a_machines_taints_are_its_kinds_and_its_cluster_is_told_of_them() -> None:
    """Who plans for the Node before it is there must know which pods it takes."""
    slow = Taint("example.com/slow", "yes", "NoSchedule")
    kept = inventory(machine("m-1"), machine("m-2", _S.CONFIGURED, "east", taints=(slow,)))
    assert sorted(flavour.taints for flavour in fleet(kept).flavours) == [(), (slow,)]
    (message,) = updates.of_cluster(kept, "east")
    assert machine_codec.taints_from_wire(message.node_state_update.taints, "") == (slow,)


def test_fields_stand_in_for_missing_labels() -> None:
    """Type, zone and capacity type can be asked for even of a provider that sets no labels."""
    labels = fleet(inventory(machine("m-1", labels={}))).flavours[0].labels
    assert labels == {
        "node.kubernetes.io/instance-type": "m6i.xlarge",
        "topology.kubernetes.io/zone": "a",
        "bigfleet.lucy.sh/capacity-type": "on-demand",
    }


def test_only_changes_are_transitions() -> None:
    """A record that says what was known is no news, one with another price neither."""
    kept = inventory(machine("m-1"))
    assert kept.apply([machine("m-1")], 1) == []
    assert kept.apply([machine("m-1", price_per_hour=9.0)], 2) == []
    assert fleet(kept).flavours[fleet(kept).flavour[0]].price_per_hour == 9.0
    (transition,) = kept.apply([machine("m-1", _S.CONFIGURED, "east")], 3)
    assert (transition.before, transition.after) == (_S.IDLE, _S.CONFIGURED)
    assert (transition.former_cluster, transition.cluster) == ("", "east")


def lists(kept: Inventory, *ids: str) -> Sequence[Transition]:
    """A full listing names these machines; the transitions of those that it does not."""
    kept.begin_full_listing()
    kept.name(ids)
    return kept.retain_named()


def test_what_a_full_listing_omits_is_gone() -> None:
    """The rows that remain keep their meaning after others are dropped."""
    kept = inventory(machine("m-1"), bound("m-2", need(priority=4)), machine("m-3"))
    (gone,) = lists(kept, "m-2", "m-3")
    assert (gone.machine_id, gone.before, gone.after) == ("m-1", _S.IDLE, None)
    assert kept.state("m-1") is None
    assert kept.state("m-2") is _S.CONFIGURED
    assert fleet(kept).priority[0] == 4


def test_a_record_is_unchanged_if_it_is_the_last_that_its_provider_gave() -> None:
    """Machines of other providers, unknown ones, and those that were never listed are none."""
    kept = Inventory(Numbers())
    kept.apply([replace(machine("m-1"), digest=7), machine("m-2")], 0.0, "ours")
    kept.apply([replace(machine("m-3"), digest=7)], 0.0, "theirs")
    ids = ["m-1", "m-2", "m-3", "m-4"]
    assert [*kept.unchanged(ids, [7, 0, 7, 7], "ours")] == ["m-1"]
    assert [*kept.unchanged(ids, [8, 0, 7, 7], "ours")] == []
    kept.apply([machine("m-1", _S.FAILED)], 1.0, "ours")  # the answer to an order
    assert [*kept.unchanged(ids, [7, 0, 7, 7], "ours")] == []


def test_an_id_of_absurd_length_takes_no_more_memory_than_it_has() -> None:
    """An array is as wide as its longest entry: a page with an id of a megabyte took 2 GB."""
    kept = inventory(machine("m-1"))
    ids = ["x" * 1_000_000, *(f"m-{number}" for number in range(200))]
    tracemalloc.start()
    try:
        assert [*kept.unchanged(ids, [1] * len(ids), "")] == []
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_idle_machines_know_since_when() -> None:
    """The moment is that of the first sight or of the last return, and gone while in use."""
    kept = inventory(machine("m-1"), now_seconds=5)
    kept.apply([machine("m-1")], 7)
    assert fleet(kept).unused_since_seconds[0] == 5
    kept.apply([machine("m-1", _S.CONFIGURING, "east")], 8)
    assert math.isnan(fleet(kept).unused_since_seconds[0])
    kept.apply([machine("m-1")], 9)
    assert fleet(kept).unused_since_seconds[0] == 9


def test_an_idle_machine_remembers_what_it_last_did() -> None:
    """Priority and penalties outlive the drain, and end when the machine is given back."""
    wanted = need(priority=6)
    kept = inventory(bound("m-1", wanted))
    kept.apply([machine("m-1")], 1)
    assert fleet(kept).priority[0] == 6
    assert fleet(kept).last_claimed_by[0] == NONE
    kept.apply([machine("m-1", _S.SPECULATIVE)], 2)
    assert fleet(kept).priority[0] == 0


def test_purpose_is_restored_from_the_providers_keeping() -> None:
    """A bound machine's metadata says which need it serves, and damaged metadata says nothing."""
    wanted = need(priority=-3, group="ns/app=x")
    kept = inventory(bound("m-1", wanted))
    view = kept.view("m-1")
    assert view is not None
    assert view.need == NeedKey("east", *wanted.key)
    damaged = {**to_metadata(wanted), "bigfleet.lucy.sh/assigned-priority": "high"}
    stranger = machine("m-2", _S.CONFIGURED, "east", shard_metadata=damaged)
    kept = inventory(stranger)
    assert fleet(kept).priority[0] == 0


@pytest.mark.parametrize(
    ("action_type", "starts", "shows"),
    [
        (ActionType.BOOTSTRAP, _S.IDLE, _S.CONFIGURING),
        (ActionType.PROVISION, _S.SPECULATIVE, _S.CREATING),
        (ActionType.RECLAIM, _S.CONFIGURED, _S.DRAINING),
        (ActionType.DELETE, _S.IDLE, _S.DELETING),
    ],
)
def test_an_order_shows_as_where_it_leads(
    action_type: ActionType, starts: MachineState, shows: MachineState
) -> None:
    """The overlay is in the snapshot only, and ends where the machine has moved on by itself."""
    cluster = "east" if starts is _S.CONFIGURED else ""
    kept = inventory(machine("m-1", starts, cluster))
    wanted = (
        need(priority=5) if action_type in (ActionType.BOOTSTRAP, ActionType.PROVISION) else None
    )
    under_way = order(action_type, "m-1", wanted, "east")
    seen = fleet(kept, under_way, position=3)
    assert seen.state[0] == shows
    assert seen.last_claimed_by[0] == (3 if wanted else NONE)
    assert kept.state("m-1") is starts
    if action_type is ActionType.BOOTSTRAP:
        assert seen.clusters[seen.cluster[0]] == "east"
        assert seen.priority[0] == 5
    moved_on = _S.SPECULATIVE if action_type is ActionType.DELETE else _S.FAILED
    kept.apply([machine("m-1", moved_on)], 1)
    assert fleet(kept, under_way).state[0] == moved_on


def test_a_machine_taken_for_a_need_is_shown_as_that_needs() -> None:
    """It drains out of its cluster, and already belongs to the need that waits for it."""
    kept = inventory(bound("m-1", need(), "west"))
    waiting = NeedKey("east", *need(priority=9).key)
    under_way = replace(order(ActionType.RECLAIM, "m-1", None, "west"), need_key=waiting)
    seen, wants = kept.snapshot([under_way])
    assert seen.state[0] == _S.DRAINING
    assert seen.clusters[seen.cluster[0]] == "west"
    known = _numbered([NONE, wants.keys.index(waiting)])
    assert wants.apply_to(seen, known).last_claimed_by.tolist() == [1]


def test_a_machine_being_created_stays_with_its_need() -> None:
    """Once the provider shows CREATING, the order is over but the purpose is not."""
    kept = inventory(machine("m-1", _S.SPECULATIVE))
    kept.attribute(order(ActionType.PROVISION, "m-1", need(), "east"))
    kept.apply([machine("m-1", _S.CREATING)], 1)
    assert fleet(kept, position=2).last_claimed_by[0] == 2
    kept.apply([machine("m-1")], 2)
    assert fleet(kept, position=2).last_claimed_by[0] == 2


def test_a_snapshot_does_not_change_afterwards() -> None:
    """What is decided from is not touched by what happens meanwhile."""
    kept = inventory(machine("m-1"))
    seen = fleet(kept)
    kept.apply([machine("m-1", _S.FAILED)], 1)
    assert seen.state[0] == _S.IDLE


def test_rows_are_tied_by_id() -> None:
    """tie_break orders rows as their ids order, whatever the order of their arrival."""
    kept = inventory(machine("m-2"), machine("m-10"), machine("m-1"))
    ranks = fleet(kept).tie_break
    assert [kept.ids[row] for row in np.argsort(ranks)] == [b"m-1", b"m-10", b"m-2"]


def test_forgotten_kinds_and_needs_make_room() -> None:
    """Compacting keeps what machines refer to and nothing else."""
    kept = inventory(machine("m-1"), bound("m-2", need(group="g")))
    for price in range(5):
        kept.apply([machine("m-1", price_per_hour=float(price))], 1)
    before = fleet(kept)
    kept.compact()
    after = fleet(kept)
    assert len(after.flavours) == 2 < len(before.flavours)
    assert after.flavours[after.flavour[0]] == before.flavours[before.flavour[0]]
    view = kept.view("m-2")
    assert view is not None
    assert view.need == NeedKey("east", *need(group="g").key)


def test_needs_that_are_gone_lose_their_numbers_once_they_are_most() -> None:
    """Gangs come and go; until then nobody has to number his needs anew. Whether a machine serves
    a need is not asked if it is in force.
    """
    numbers = Numbers()
    kept, table = Inventory(numbers), NeedsTable(numbers)
    table.replace(rollup("west", *(need(group=f"g{number}") for number in range(20))), 0.0)
    past = [NeedKey("east", "gone", f"g{number}") for number in range(1000)]
    for key in past:
        numbers.needs.number(key)
    kept.apply([bound("m-1", need(group="g"))], 0.0)
    kept.compact()
    assert len(numbers.needs) == 1021
    for key in past[:50]:
        numbers.needs.number(key._replace(cluster="north"))
    kept.compact()
    assert len(numbers.needs) == 21
    view = kept.view("m-1")
    assert view is not None
    assert view.need == NeedKey("east", *need(group="g").key)
    number = table.demand().number
    assert number is not None
    assert {numbers.needs[each].group for each in number.tolist()} == {f"g{n}" for n in range(20)}
    assert len(numbers.needs) == 21


@given(st.lists(st.lists(st.sampled_from([f"m-{n}" for n in range(12)]), max_size=6), max_size=6))
def test_ids_are_found_where_they_were_put(batches: list[list[str]]) -> None:
    """After any additions and removals each id has its row, and others have none."""
    ids = MachineIds()
    here: list[str] = []
    for batch in batches:
        fresh = [i for i in dict.fromkeys(batch) if i not in here]
        ids.add(fresh)
        here += fresh
        keep = np.array([i != min(here) for i in here], np.bool_)
        if len(here) > 4:
            ids.keep(keep)
            here.remove(min(here))
    assert [ids.id(row) for row in range(len(ids))] == here
    assert [ids.row(i) for i in here] == list(range(len(here)))
    assert ids.row("m-99") == NONE
    assert [here[row] for row in np.argsort(ids.ranks)] == sorted(here)


def test_a_listing_older_than_an_answer_is_stale() -> None:
    """A record that shows a machine as it was before its order cannot undo the answer to it."""
    orders = Orders()
    sent = order(ActionType.BOOTSTRAP, "m-1", need(), "east")
    orders.add(sent)
    asked_before = orders.listing_asked()
    assert not orders.is_stale("m-1", _S.IDLE, asked_before)
    sent.sent = True
    assert orders.is_stale("m-1", _S.IDLE, asked_before)
    assert not orders.is_stale("m-1", _S.CONFIGURED, asked_before)
    orders.close(sent)
    assert orders.is_stale("m-1", _S.IDLE, asked_before)
    asked_after = orders.listing_asked()
    assert not orders.is_stale("m-1", _S.IDLE, asked_after)


def test_an_answer_is_protected_until_every_older_listing_has_ended() -> None:
    """Of several providers one may still be read when later listings of others are applied."""
    orders = Orders()
    slow = orders.listing_asked()
    sent = order(ActionType.BOOTSTRAP, "m-1", need(), "east")
    orders.add(sent)
    sent.sent = True
    orders.close(sent)
    orders.listing_ended(orders.listing_asked())
    assert orders.is_stale("m-1", _S.IDLE, slow)
    orders.listing_ended(slow)
    assert not orders.is_stale("m-1", _S.IDLE, orders.listing_asked())


def test_an_overtaken_order_is_dropped_unless_it_was_sent() -> None:
    """A machine that moved by itself is free for new orders, except while an answer is awaited."""
    orders = Orders()
    queued = order(ActionType.DELETE, "m-1")
    orders.add(queued)
    orders.overtake("m-1")
    assert orders.of("m-1") is None
    assert not orders.is_current(queued)
    sent = replace(queued, sent=True)
    orders.add(sent)
    orders.overtake("m-1")
    assert orders.of("m-1") is sent


def claimed(
    kept: Inventory,
    claims: list[int],
    needs: list[Need],
    now_seconds: float,
    *,
    reported: bool = True,
) -> None:
    """A decision whose needs, all of cluster east, counted these machines."""
    east = kept.snapshot([])[0].clusters.index("east")
    of_east = np.full(len(needs), east, np.int32)
    demand = Demand(needs, of_east, frozenset({east} if reported else ()))
    keys = [NeedKey("east", *wanted.key) for wanted in needs]
    for _ in kept.note_claims(np.array(claims, np.int32), (), demand, keys, now_seconds):
        pass


def last_claimed_by(kept: Inventory, needs: list[Need]) -> list[int]:
    seen, wants = kept.snapshot([])
    of_east = np.full(len(needs), seen.clusters.index("east"), np.int32)
    demand = wants.numbered(Demand(needs, of_east, frozenset()), seen.clusters)
    return [int(index) for index in wants.apply_to(seen, demand).last_claimed_by]


def test_what_a_decision_counted_is_counted_likewise_next_time() -> None:
    """Whatever its state, a machine is the need's that counted it last; one at work that nobody
    counts stays its former need's, any other is nobody's then.
    """
    needs = [need(priority=1), need(priority=2)]
    kept = inventory(
        bound("m-1", needs[0]), machine("m-2"), machine("m-3", _S.SPECULATIVE), machine("m-4")
    )
    claimed(kept, [1, 1, 0, NONE], needs, 7.0)
    assert last_claimed_by(kept, needs) == [1, 1, 0, NONE]
    claimed(kept, [NONE, NONE, NONE, 0], needs, 8.0)
    assert last_claimed_by(kept, needs) == [1, NONE, NONE, 0]


def test_an_additional_need_leaves_a_machine_in_service_that_it_does_not_count() -> None:
    """Pods run there meanwhile. Those that still wait, or will, are for a further machine."""
    extra = replace(need(), group=ADDITIONAL)
    kept = inventory(bound("m-1", extra), bound("m-2", extra))
    claimed(kept, [NONE, NONE], [], 7.0, reported=False)
    assert last_claimed_by(kept, [extra]) == [0, 0], "whether it has ended is not known yet"
    claimed(kept, [1, NONE], [need(), extra], 8.0)
    assert last_claimed_by(kept, [need(), extra]) == [1, NONE]
    claimed(kept, [NONE, NONE], [need()], 9.0)
    assert last_claimed_by(kept, [extra]) == [NONE, NONE]


def test_a_machine_where_a_gang_never_ran_is_no_longer_that_gang_s() -> None:
    """Else it would be asked for again in each decision, as a machine that the gang has left."""
    gang = need(group="gang")
    kept = inventory(bound("m-1", gang), bound("m-2", gang))
    kept.unclaim("m-1")
    kept.unclaim("unknown")
    assert last_claimed_by(kept, [gang]) == [NONE, 0]


def test_a_machine_is_worth_what_it_serves_now() -> None:
    """Priority and penalties follow the claim, not what the machine was once bound for."""
    needs = [need(priority=1), need(priority=2)]
    kept = inventory(bound("m-1", needs[0]))
    claimed(kept, [1], needs, 7.0)
    assert fleet(kept).priority.tolist() == [2]


def test_a_drained_machine_stays_promised() -> None:
    """From its draining to its being idle it is the need's that it was drained for, and not the
    one's that its metadata still names.
    """
    needs = [need(priority=1), need(priority=9)]
    kept = Inventory(Numbers(), lambda _: NeedKey("east", *needs[1].key))
    kept.apply([bound("m-1", needs[0])], 1)
    kept.apply([replace(bound("m-1", needs[0]), state=_S.DRAINING)], 2)
    assert last_claimed_by(kept, needs) == [1]
    kept.apply([machine("m-1")], 3)
    assert last_claimed_by(kept, needs) == [1]
    assert fleet(kept).priority.tolist() == [1], "it keeps the worth of what it last served"


def test_a_machine_that_nobody_counts_knows_since_when() -> None:
    """The first decision that leaves it out sets the time, one that counts it clears it."""
    kept = inventory(bound("m-1", need()))
    since = []
    for now, claim in ((5.0, NONE), (6.0, NONE), (7.0, 0), (8.0, NONE)):
        claimed(kept, [claim], [need()], now)
        since.append(fleet(kept).unused_since_seconds[0])
    assert since[:2] == [5.0, 5.0]
    assert math.isnan(since[2])
    assert since[3] == 8.0


def test_domains_are_counted_anew_only_when_machines_come_or_go() -> None:
    """A report looks at them every few seconds, and a fleet has tens of thousands."""
    labels = {"topology.bigfleet/rack": "r-1"}
    kept = inventory(machine("m-1", labels=labels), machine("m-2", labels=labels))
    seen = kept.observed_domains()
    [(domain, counts)] = seen.items()
    assert (domain.value, counts.total()) == ("r-1", 2)
    kept.apply([machine("m-1", _S.CONFIGURED, "east", labels=labels)], 1.0)
    assert kept.observed_domains() is seen
    assert kept.machines_in_use() == {domain: 1}
    kept.apply([machine("m-3", labels=labels)], 2.0)
    assert kept.observed_domains()[domain].total() == 3
    lists(kept, "m-3")
    assert kept.observed_domains()[domain].total() == kept.count_listed() == 1
