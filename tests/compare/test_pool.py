"""Recorded pairs tell how often sessions made of them would err."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from loaddriver.__main__ import main
from loaddriver.compare.measures import ENDPOINTS
from loaddriver.compare.pool import Judge, Pool, pool_of, rate_of, read_large_pool, read_pool
from loaddriver.compare.sequential import Code, Codes, Floats, Spending
from loaddriver.errors import ExitCode, ProfileError
from tests.compare.compare_rig import pairs_of

POOLS = Path(__file__).parents[2] / "docs" / "results" / "compare-pools"
DRAWS = 3000


def simulated(
    count: int = 24, deviation: float = 0.03, injected: str = "", endpoint: str = ""
) -> Pool:
    """A pool as a pilot would record it."""
    head = {injected.split("=")[0]: 1.1} if injected else None
    return pool_of("compare-50", "m", pairs_of(count, deviation, 3, head), injected, endpoint)


def always(code: Code) -> Judge:
    """A judge that knows its answer beforehand."""

    def judge(ratios: Floats, head: Floats, _base: Floats, _plan: Spending) -> Codes:
        return np.full((len(ratios), ratios.shape[2] + head.shape[2]), code, dtype=np.int8)

    return judge


def test_equal_systems_regress_rarely() -> None:
    """Also with labels that chance gave to the pool: each relabelling is as likely."""
    found = rate_of(simulated(), DRAWS)
    assert found.rate <= 0.05
    assert found.interval[0] <= found.rate <= found.interval[1] <= 0.3
    assert found.passes


@pytest.mark.parametrize(
    ("part", "endpoint"), [("scheduled", "scheduled"), ("shard.cpu", "shardCpu")]
)
def test_an_injected_tenth_is_found(part: str, endpoint: str) -> None:
    found = rate_of(simulated(12, 0.02, f"{part}=+10%", endpoint), DRAWS)
    assert found.rate >= 0.95
    assert found.passes


def test_a_judge_that_always_says_same_fails() -> None:
    """It never raises a false alarm, and never finds anything."""
    same = always(Code.SAME)
    assert rate_of(simulated(), DRAWS, judge=same).passes
    injected = simulated(12, 0.02, "scheduled=+10%", "scheduled")
    assert not rate_of(injected, DRAWS, judge=same).passes


def test_a_judge_that_always_says_regression_fails() -> None:
    worse = always(Code.REGRESSION)
    assert not rate_of(simulated(), DRAWS, judge=worse).passes


def test_noise_that_hides_a_tenth_is_not_powerful() -> None:
    assert not rate_of(simulated(12, 0.2, "scheduled=+10%", "scheduled"), DRAWS).passes


def test_a_drift_that_all_pairs_share_is_relabelled_away() -> None:
    """A pool whose HEAD was always second, and slower for it, tells nothing about labels."""
    drifting = pool_of("p", "m", pairs_of(24, 0.03, 3, {"scheduled": 1.05}))
    assert rate_of(drifting, DRAWS).rate <= 0.05


def written(path: Path, pool: Pool) -> Path:
    path.write_bytes(msgspec.json.encode(pool))
    return path


def test_the_command_says_rates_and_ends_by_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 if all pools are as stated, 3 if not."""
    equal = written(tmp_path / "aa.json", simulated())
    found = written(tmp_path / "found.json", simulated(12, 0.02, "scheduled=+10%", "scheduled"))
    hidden = written(tmp_path / "hidden.json", simulated(12, 0.2, "scheduled=+10%", "scheduled"))
    draws = ["--relabellings", "500"]
    assert main(["compare-power", str(equal), str(found), *draws]) == ExitCode.PASS
    said = capsys.readouterr().out
    assert "24 pairs: equal systems regress in" in said
    assert "12 pairs: scheduled=+10% found in" in said
    assert main(["compare-power", str(hidden), *draws]) == ExitCode.GATE_MISSED


@pytest.mark.parametrize(
    "pool",
    [
        simulated(23),
        simulated(11, injected="scheduled=+10%", endpoint="scheduled"),
        simulated(12, injected="scheduled=+10%", endpoint="elsewhere"),
    ],
)
def test_a_pool_that_is_too_small_is_refused(tmp_path: Path, pool: Pool) -> None:
    with pytest.raises(ProfileError):
        read_large_pool(written(tmp_path / "pool.json", pool))


def test_a_bias_that_relabelling_hides_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flipped by coins, a constant difference of equal systems is noise like any."""
    biased = pool_of("p", "m", pairs_of(24, 0.03, 3, {"scheduled": 1.05}))
    main(["compare-power", str(written(tmp_path / "a.json", biased)), "--relabellings=50"])
    assert "differ most surely in scheduled" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(POOLS.glob("*.json")), ids=lambda path: path.stem)
def test_a_pool_of_the_repository_can_be_read(path: Path) -> None:
    """`make compare-power` judges them."""
    pool = read_pool(path)
    assert pool.profile == "compare-50"
    keys = {endpoint.key for endpoint in ENDPOINTS}
    assert {frozenset(pair.ratios) for pair in pool.pairs} == {frozenset(keys)}
    assert pool.endpoint in {"", *keys}
