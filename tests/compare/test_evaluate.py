"""Pairs become verdicts, with the hop or component that carries a change."""

from __future__ import annotations

import math

import msgspec
import pytest

from loaddriver.compare.attribution import hop_growth
from loaddriver.compare.comparison import Comparison, EndpointResult
from loaddriver.compare.exact import VOID_LIMIT, Void
from loaddriver.compare.machine_speed import machine_speed
from loaddriver.compare.measures import PairMeasures, RunMeasures, pair_measures
from loaddriver.errors import ExitCode
from loaddriver.record.hops import HOPS
from tests.compare.compare_rig import PLAN, compared, pairs_of, run


def endpoint(found: Comparison, key: str) -> EndpointResult:
    (result,) = (each for each in found.endpoints if each.key == key)
    return result


def test_equal_systems_are_not_worse() -> None:
    found = compared(pairs_of(10))
    assert (found.verdict, found.exit_code) == ("not worse", ExitCode.PASS)
    assert {each.verdict for each in found.endpoints} == {"same"}
    assert found.attributed == ""


@pytest.mark.parametrize(
    ("part", "factor", "key"),
    [
        ("provisioned", 1.2, "machines"),
        ("nodeReady", 1.8, "machines"),
        ("scheduled", 1.2, "scheduled"),
        ("shard.cpu", 1.2, "shardCpu"),
        ("operator.cpu", 1.8, "bigfleetCpu"),
        ("kube-apiserver.cpu", 1.2, "apiCpu"),
        ("etcd.cpu", 1.9, "apiCpu"),
    ],
)
def test_a_regression_is_attributed_to_its_part(part: str, factor: float, key: str) -> None:
    """To the hop or component that carries at least half of the change, and with exit code 4."""
    found = compared(pairs_of(10, head={part: factor}))
    assert found.exit_code == ExitCode.REGRESSION
    assert endpoint(found, key).verdict == "regression"
    assert found.attributed == endpoint(found, key).attributed == part
    assert any(part in sentence for sentence in found.why)


def test_a_change_of_many_parts_is_attributed_to_none() -> None:
    """Where each of four components costs a fifth more, no one carries half."""
    parts = {"shard.cpu": 1.3, "operator.cpu": 1.4, "pod-controller.cpu": 1.25, "provider.cpu": 1.8}
    result = endpoint(compared(pairs_of(10, head=parts)), "bigfleetCpu")
    assert result.verdict == "regression"
    assert result.attributed == ""


def test_an_improvement_is_no_reason_to_fail() -> None:
    found = compared(pairs_of(10, head={"provisioned": 0.7}))
    result = endpoint(found, "machines")
    assert found.exit_code == ExitCode.PASS
    assert (result.verdict, result.attributed) == ("improvement", "provisioned")
    assert result.effect_percent is not None
    assert result.effect_percent < -15


def test_noise_says_how_many_pairs_would_settle_it() -> None:
    found = compared(pairs_of(6, deviation=0.2))
    assert found.exit_code == ExitCode.NOT_ENOUGH_DATA
    (needed,) = {each.pairs_to_settle for each in found.endpoints if each.key == "scheduled"}
    assert needed is not None
    assert needed > 6
    assert any(f"about {needed} pairs" in sentence for sentence in found.why)


def test_the_interval_contains_the_effect() -> None:
    result = endpoint(compared(pairs_of(10, head={"scheduled": 1.2})), "scheduled")
    assert result.interval_percent is not None
    assert result.effect_percent is not None
    assert result.interval_percent[0] < result.effect_percent < result.interval_percent[1]
    assert result.interval_percent[0] < 20 < result.interval_percent[1]


def test_an_endpoint_that_one_side_lacks_is_not_decided() -> None:
    """A side without a number could hide anything."""
    pairs = pairs_of(10)
    head = {key: value for key, value in pairs[0].head.values.items() if key != "shardCpu"}
    broken = pair_measures(
        pairs[0].base,
        type(pairs[0].head)(
            values=head,
            parts=pairs[0].head.parts,
            events=pairs[0].head.events,
            described={},
            waits=pairs[0].head.waits,
        ),
    )
    found = compared([broken, *pairs[1:]])
    assert endpoint(found, "shardCpu").verdict == "not enough data"
    assert found.exit_code == ExitCode.NOT_ENOUGH_DATA


def without_shard_cpu(run_of: RunMeasures, system: str = "bigfleet") -> RunMeasures:
    values = {key: value for key, value in run_of.values.items() if key != "shardCpu"}
    return msgspec.structs.replace(run_of, values=values, system=system)


def test_an_endpoint_that_another_system_never_has_is_not_measured() -> None:
    """Another autoscaler has no shard; what both have still decides."""
    pairs = [
        pair_measures(pair.base, without_shard_cpu(pair.head, "karpenter")) for pair in pairs_of(10)
    ]
    found = compared(pairs)
    assert endpoint(found, "shardCpu").verdict == "not measured"
    assert endpoint(found, "dueToBind").verdict != "not measured"


def test_a_number_that_head_no_longer_has_is_not_passed_over() -> None:
    """A metric that was renamed would let shards cost anything."""
    found = compared([pair_measures(p.base, without_shard_cpu(p.head)) for p in pairs_of(10)])
    assert endpoint(found, "shardCpu").verdict == "not enough data"
    assert found.exit_code == ExitCode.NOT_ENOUGH_DATA
    neither = [
        pair_measures(without_shard_cpu(p.base), without_shard_cpu(p.head)) for p in pairs_of(10)
    ]
    assert endpoint(compared(neither), "shardCpu").verdict == "not measured"


def test_a_few_runs_that_only_head_voids_are_told_and_many_are_no_pass() -> None:
    """A HEAD that crashes in half of its runs has as many pairs as any, only later."""
    few, many = (compared(pairs_of(6, 0.01), voids(head, 0)) for head in (1, 4))
    assert (few.exit_code, many.exit_code) == (ExitCode.PASS, ExitCode.NOT_ENOUGH_DATA)
    for found in (few, many):
        assert any("the shard has crashed" in sentence for sentence in found.why)


def test_fewer_pairs_than_the_first_look_decide_nothing() -> None:
    assert compared(pairs_of(4, 0.001)).exit_code == ExitCode.NOT_ENOUGH_DATA


def test_a_little_more_for_pods_that_wait_a_little_is_not_blamed_on_the_longest_hop() -> None:
    """Most of a geometric mean are the pods that wait shortest, of the seconds the others'."""
    before = {"scheduled": 0.1, "provisioned": 0.0}, {"scheduled": 0.1, "provisioned": 60.0}
    after = {"scheduled": 0.13, "provisioned": 0.0}, {"scheduled": 0.13, "provisioned": 60.4}
    base, head = (
        msgspec.structs.replace(
            run(),
            hops={
                f"c1/web-{number}": {
                    hop: (waiting if number < 4 else short).get(hop, 0.0) for hop in HOPS
                }
                for number in range(40)
            },
        )
        for short, waiting in (before, after)
    )
    speed = machine_speed([])
    found = hop_growth(base, head, speed)
    assert found["scheduled"] > 10 * found["provisioned"] > 0
    assert sum(found.values()) == pytest.approx(0.9 * math.log(1.3) + 0.1 * math.log(60.53 / 60.1))


def test_decisions_that_cost_more_because_there_are_fewer_are_blamed_on_no_part() -> None:
    """The shards took no more CPU for a pod."""
    pairs = [
        pair_measures(
            pair.base,
            msgspec.structs.replace(
                pair.head,
                values={**pair.head.values, "shardCpu": 1.25 * pair.base.values["shardCpu"]},
                parts={**pair.head.parts, "shard.cpu": 0.9 * pair.base.parts["shard.cpu"]},
            ),
        )
        for pair in pairs_of(8, 0.01)
    ]
    result = endpoint(compared(pairs), "shardCpu")
    assert (result.verdict, result.attributed) == ("regression", "")


def test_only_objects_of_both_sides_are_compared() -> None:
    """An object that one side never created does not shift the mean of the others."""
    base, head = run(), run()
    head.waits["dueToBind"]["c1/only-here"] = 5.0
    assert pair_measures(base, head).ratios["dueToBind"] == 0


def with_event(count: int, head: int, base: int = 0) -> list[PairMeasures]:
    """Pairs in the first of which pods were never bound."""
    return [
        pair_measures(
            run(neverBound=3 if number < base else 0), run(neverBound=3 if number < head else 0)
        )
        for number in range(count)
    ]


def test_pods_that_only_head_never_binds_are_a_regression() -> None:
    found = compared(with_event(8, head=8))
    assert found.exit_code == ExitCode.REGRESSION
    assert "never bound: in 8 of 8 runs of HEAD (24 in all) and in 0 of BASE" in found.why[0]
    assert compared(with_event(8, head=8, base=8)).exit_code == ExitCode.PASS


def test_a_suspicion_is_not_the_same_and_not_a_regression() -> None:
    assert compared(with_event(6, head=5)).exit_code == ExitCode.NOT_ENOUGH_DATA


def voids(head: int, base: int) -> list[Void]:
    return [Void("head", "the shard has crashed")] * head + [Void("base", "busy cores")] * base


def test_a_head_that_voids_more_often_is_a_regression_with_its_reason() -> None:
    found = compared(pairs_of(3), voids(VOID_LIMIT, 0))
    assert found.exit_code == ExitCode.REGRESSION
    assert "the shard has crashed" in found.why[0]


@pytest.mark.parametrize("head", [0, 4, 7])
def test_too_many_voids_of_both_sides_have_an_exit_code_of_their_own(head: int) -> None:
    found = compared(pairs_of(3), voids(head, VOID_LIMIT - head))
    assert (found.verdict, found.exit_code) == ("too many voids", ExitCode.INVALID_RUN)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [(0, "no pair has a valid run on both sides"), (1, "one pair does not show how much")],
)
def test_too_few_pairs_are_not_enough_data_and_it_is_said_once(pairs: int, said: str) -> None:
    found = compared(pairs_of(pairs))
    assert found.exit_code == ExitCode.NOT_ENOUGH_DATA
    assert [each[: len(said)] for each in found.why] == [said]


def test_voids_that_keep_a_session_from_passing_are_its_reason() -> None:
    """All endpoints are the same, and HEAD has lost five runs that BASE has not."""
    found = compared(pairs_of(6), voids(5, 0))
    assert found.exit_code == ExitCode.NOT_ENOUGH_DATA
    assert found.why[0].startswith("suspicious, and not proven: 5 runs were void, 5 of HEAD")
    assert "the shard has crashed" in found.why[0]
    assert len(found.why) == 1


def test_no_verdict_is_promised_before_the_first_look() -> None:
    """Three pairs may look clear; a session judges nothing before it has six."""
    settled = [each.pairs_to_settle for each in compared(pairs_of(3)).endpoints]
    assert {each for each in settled if each is not None} == {PLAN.looks[0]}
