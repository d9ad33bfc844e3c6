"""What is said of a federation follows from its samples and the writes to its HPAs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from loaddriver.fedhpa.record import FEDERATION_UP, RECONNECTED, FaultEvent, FederationRecord
from loaddriver.judge.federation.scaling_response import load_changes
from loaddriver.judge.federation.section import FederationSection, Sources, federation_section
from loaddriver.judge.federation.sums import breaches
from loaddriver.record.hpas import FederatedStatus, HpaWrite, Share
from tests.fedhpa.fedhpa_rig import BEGAN, busier, record, schedule, share_write

SPLIT = [share_write(-30, name, 2, 12) for name in ("c1", "c2", "c3")]
STEADY = {"c1": 2, "c2": 2, "c3": 2}


def section(
    played: FederationRecord, writes: Sequence[HpaWrite], statuses: Sequence[FederatedStatus] = ()
) -> FederationSection:
    return federation_section(Sources(played, [*SPLIT, *writes], statuses))


def test_lowering_before_raising_keeps_both_sums() -> None:
    moved = [share_write(10, "c1", 2, 6), share_write(11, "c2", 2, 18)]
    found = breaches([*SPLIT, *moved], 6, 36)
    assert (found.observed, found.of_max, found.of_min) == (5, 0, 0)


def test_raising_before_lowering_breaks_the_sum_of_max_although_it_is_right_afterwards() -> None:
    moved = [share_write(10, "c2", 2, 18), share_write(11, "c1", 2, 6)]
    assert breaches([*SPLIT, *moved], 6, 36).of_max == 1


def test_the_sum_of_min_counts_from_when_it_was_reached() -> None:
    assert breaches(SPLIT, 6, 36).of_min == 0
    assert breaches([*SPLIT, share_write(10, "c3", 1, 12)], 6, 36).of_min == 1


def test_a_cluster_whose_hpa_is_gone_counts_no_more() -> None:
    gone = HpaWrite(SPLIT[0].at_micros + 1, "c1", True, None, 0, 0)
    assert breaches([*SPLIT, gone], 6, 36).of_min == 1


def test_a_write_that_leaves_the_share_as_it_was_is_no_move() -> None:
    said = HpaWrite(round((BEGAN + 5) * 1e6), "c1", False, Share(2, 12), 3, 3)
    assert section(record(schedule(), lambda _: STEADY), [said]).moves == 0


def test_more_load_is_followed_when_enough_pods_work() -> None:
    made = schedule(more=busier(c2=1.675))  # six to seven pods
    played = record(made, lambda t: {**STEADY, "c2": 7 if t >= 112 else 2})
    [episode] = load_changes(made, played.samples, BEGAN)
    assert (episode.cluster, episode.up, episode.seconds) == ("c2", True, 12)
    assert section(played, []).up.max_seconds == 12


def test_what_never_gets_there_is_counted_and_has_no_time() -> None:
    found = section(record(schedule(more=busier(c2=1.675)), lambda _: STEADY), [])
    assert (found.up.changes, found.up.never_reached, found.up.max_seconds) == (1, 1, None)


def test_replicas_that_are_missing_or_too_many_are_counted_by_the_second() -> None:
    made = schedule(more=busier(c2=1.675))
    found = section(record(made, lambda t: {**STEADY, "c2": 7 if t >= 110 else 2}), [])
    assert found.phases["more"].under_replica_seconds == pytest.approx(10 * 5)
    early = section(record(made, lambda t: {**STEADY, "c2": 7 if t >= 90 else 2}), [])
    assert early.phases["first"].over_replica_seconds == pytest.approx(10 * 5)


def test_sums_are_looked_at_as_each_phase_ends() -> None:
    made = schedule(more=busier(c2=0.425))
    found = section(record(made, lambda _: STEADY), [share_write(150, "c1", 2, 10)])
    assert found.phases["first"].sum_max_off == 0
    assert found.phases["more"].sum_max_off == -2
    assert found.worst_sum_off == 2


def test_the_worst_minute_of_moves_is_any_sixty_seconds() -> None:
    moves = [share_write(at, "c1", 2, 12 - n) for n, at in enumerate((5, 50, 64, 70), start=1)]
    assert section(record(schedule(), lambda _: STEADY), moves).most_moves_in_a_minute == 3


def test_a_healing_ends_with_the_first_pass_that_reached_the_cluster() -> None:
    played = record(schedule(), lambda _: STEADY)
    played = replace(played, events=[FaultEvent(BEGAN + 20, RECONNECTED, "c3")])
    statuses = [
        FederatedStatus(round((BEGAN + at) * 1e6), {"c3": state})
        for at, state in ((15, "Scaling"), (21, "Unreachable"), (23, "Held"), (30, "Scaling"))
    ]
    healed = section(played, [], statuses).healed
    assert healed is not None
    assert (healed.cluster, healed.seconds, healed.sums_off) == ("c3", 3, 0)


def test_a_recovery_ends_with_the_first_pass_after_the_federation_came_back() -> None:
    played = replace(
        record(schedule(), lambda _: STEADY), events=[FaultEvent(BEGAN + 20, FEDERATION_UP)]
    )
    statuses = [FederatedStatus(round((BEGAN + at) * 1e6), {}) for at in (15, 24, 30)]
    assert section(played, [], statuses).recovered_seconds == 4
    assert section(played, [], statuses[:1]).recovered_seconds is None


def test_a_cluster_that_is_never_reached_again_has_no_healing_to_show() -> None:
    played = replace(
        record(schedule(), lambda _: STEADY), events=[FaultEvent(BEGAN + 20, RECONNECTED, "c3")]
    )
    healed = section(played, []).healed
    assert healed is not None
    assert healed.seconds is None
    assert healed.sums_off is None
