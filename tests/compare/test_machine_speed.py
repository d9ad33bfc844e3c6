"""What takes CPU is compared relative to how fast the machine was, as far as that is known."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from loaddriver.compare.comparison import Comparison
from loaddriver.compare.machine_speed import machine_speed, relative, relative_parts
from loaddriver.compare.markdown import render_markdown
from loaddriver.compare.measures import (
    MACHINE_HOPS,
    REFERENCES,
    WRITES,
    PairMeasures,
    RunMeasures,
    cpu_part,
    pair_measures,
)
from loaddriver.compare.wording import speed_sentence
from tests.compare.compare_rig import PARTS, compared, run

KWOK, MANAGER, CONTROLLERS = REFERENCES
SHARED = {KWOK: 3.0, MANAGER: 5.0}
NOISE = 0.015
TAKE_CPU = ("scheduled", "bigfleetCpu", "shardCpu", "apiCpu")


def measured(
    random: np.random.Generator, speed: float, factors: Mapping[str, float]
) -> RunMeasures:
    """A run on a machine where all that takes CPU takes `speed` times as much."""
    noise = {name: math.exp(random.normal(0, NOISE)) for name in (*PARTS, *SHARED)}
    slow = {name: 1.0 if name in MACHINE_HOPS else speed for name in noise}
    found = run({name: slow[name] * noise[name] * factors.get(name, 1.0) for name in PARTS})
    shared = {
        cpu_part(name): value * slow[name] * noise[name] * factors.get(name, 1.0)
        for name, value in SHARED.items()
    }
    return msgspec.structs.replace(
        found, parts={**found.parts, **shared}, shared=dict.fromkeys(SHARED, "digest")
    )


def pairs_of(count: int, head: Mapping[str, float], varies: float = 0.1) -> list[PairMeasures]:
    """Pairs of runs, for each of which the machine had another speed."""
    random = np.random.default_rng(4)
    speeds = np.exp(random.normal(0, varies, (count, 2)))
    return [
        pair_measures(measured(random, base, {}), measured(random, its, head))
        for base, its in speeds.tolist()
    ]


def verdicts(found: Comparison) -> dict[str, str]:
    return {each.key: each.verdict for each in found.endpoints}


def test_equal_systems_are_the_same_although_the_machine_was_not() -> None:
    pairs = pairs_of(8, {})
    unknown = [msgspec.structs.replace(pair, shared={}) for pair in pairs]
    known, measured_only = verdicts(compared(pairs)), verdicts(compared(unknown))
    assert {known[key] for key in TAKE_CPU} == {"same"}
    assert "same" not in {measured_only[key] for key in TAKE_CPU}


@pytest.mark.parametrize(
    ("part", "endpoint"),
    [("scheduled", "scheduled"), ("shard.cpu", "shardCpu"), ("kube-apiserver.cpu", "apiCpu")],
)
def test_what_got_dearer_is_found_and_blamed_although_the_machine_was_faster(
    part: str, endpoint: str
) -> None:
    """As much as hides it in what was measured."""
    faster = {name: 0.85 * (1.15 if name == part else 1) for name in PARTS | SHARED}
    found = compared(pairs_of(8, faster))
    [result] = [each for each in found.endpoints if each.key == endpoint]
    assert (result.verdict, result.attributed) == ("regression", part)


def test_waits_for_simulated_machines_are_compared_as_they_are() -> None:
    pairs = pairs_of(6, {})
    changed = relative(pairs, machine_speed(pairs))
    assert [each.ratios["machines"] for each in changed] == [p.ratios["machines"] for p in pairs]
    parts = {"provisioned": (1.0, 1.0), "scheduled": (1.0, 1.0)}
    found = relative_parts(parts, machine_speed(pairs))
    assert found["provisioned"] == (1.0, 1.0) != found["scheduled"]


def test_references_that_disagree_are_not_used_and_the_page_says_so() -> None:
    """A system that makes one of them do more must not look cheaper by that."""
    found = compared(pairs_of(8, {KWOK: 1.1}))
    assert not found.speed.used
    assert "one of them does more or less for HEAD" in speed_sentence(found.speed)
    assert speed_sentence(found.speed) in render_markdown(found)


def test_another_binary_is_no_reference() -> None:
    base, head = (measured(np.random.default_rng(n), 1.0, {}) for n in (1, 2))
    another = msgspec.structs.replace(head, shared={KWOK: "digest", MANAGER: "another"})
    assert pair_measures(base, another).shared.keys() == {KWOK}


def test_without_a_reference_times_are_as_measured() -> None:
    found = machine_speed([pair_measures(run(), run())])
    assert not found.used
    assert "Times are as measured" in speed_sentence(found)


def test_a_single_reference_is_none() -> None:
    """kwok talks to the API server that is compared, so that HEAD may be why it takes more."""
    pairs = [
        msgspec.structs.replace(pair, shared={KWOK: pair.shared[KWOK]}) for pair in pairs_of(8, {})
    ]
    speed = machine_speed(pairs)
    assert speed.unusable == "unknown"
    assert relative(pairs, speed) == pairs


def with_writes(run_of: RunMeasures, writes: float) -> RunMeasures:
    return msgspec.structs.replace(run_of, described={WRITES: writes})


def test_references_that_both_do_more_for_more_writes_are_not_used() -> None:
    """12 % more of everything, Nodes and Pods alike, is no slower machine."""
    pairs = [
        msgspec.structs.replace(
            pair, base=with_writes(pair.base, 9.0), head=with_writes(pair.head, writes)
        )
        for pair, writes in zip(pairs_of(8, {}), [10.0, 10.1] * 4, strict=True)
    ]
    found = compared(pairs)
    assert found.speed.unusable == "writes"
    assert "more or fewer writes" in speed_sentence(found.speed)
    alike = [msgspec.structs.replace(p, head=with_writes(p.head, 9.1)) for p in pairs]
    assert machine_speed(alike).used


def test_waits_of_runs_on_a_slower_machine_are_not_judged_unless_interleaved() -> None:
    """How much longer a wait is on a slower machine is not known; over pairs it is noise."""
    pairs = [
        msgspec.structs.replace(
            pair, shared={name: change + math.log(1.2) for name, change in pair.shared.items()}
        )
        for pair in pairs_of(8, {}, varies=0.01)
    ]
    speed = machine_speed(pairs, pairing="on disk")
    stored = relative(pairs, speed)
    assert {"dueToBind", "scheduled"}.isdisjoint(stored[0].ratios)
    assert "apiCpu" in stored[0].ratios
    assert "due to bind and scheduled are not judged" in speed_sentence(speed)
    played = relative(pairs, machine_speed(pairs))
    assert played[0].ratios.keys() == pairs[0].ratios.keys()


def test_runs_at_once_met_a_machine_of_one_speed() -> None:
    """References would add their own noise, and nothing is left to correct."""
    pairs = pairs_of(8, {})
    found = compared(pairs, pairing="at once")
    assert relative(pairs, found.speed) == pairs
    assert "at the same time, on a machine of one speed" in speed_sentence(found.speed)
    assert speed_sentence(found.speed) in render_markdown(found)


def test_between_kubernetes_releases_bigfleets_controllers_show_the_speed() -> None:
    """kube-controller-manager is another binary then; what BigFleet takes itself is relative to
    kwok alone.
    """
    pairs = [
        msgspec.structs.replace(
            pair, shared={KWOK: pair.shared[KWOK], CONTROLLERS: pair.shared[MANAGER]}
        )
        for pair in pairs_of(8, {})
    ]
    speed = machine_speed(pairs)
    assert speed.used
    assert [*speed.components] == [KWOK, CONTROLLERS]
    for pair, changed in zip(pairs, relative(pairs, speed), strict=True):
        slower = sum(pair.shared.values()) / 2
        assert changed.ratios["apiCpu"] == pytest.approx(pair.ratios["apiCpu"] - slower)
        of_kwok = pair.ratios["bigfleetCpu"] - pair.shared[KWOK]
        assert changed.ratios["bigfleetCpu"] == pytest.approx(of_kwok)


def test_the_two_best_references_are_taken() -> None:
    """BigFleet is what is compared most often, so its controllers come last."""
    pairs = [
        msgspec.structs.replace(pair, shared={CONTROLLERS: 0.5, **pair.shared})
        for pair in pairs_of(8, {})
    ]
    assert [*machine_speed(pairs).components] == [KWOK, MANAGER]
