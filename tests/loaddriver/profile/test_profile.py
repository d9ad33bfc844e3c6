from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from loaddriver.errors import ProfileError
from loaddriver.profile.fleet import LatencyDistribution
from loaddriver.profile.gates import load_gates
from loaddriver.profile.loading import load_profile, profile_names
from loaddriver.profile.yaml_reader import parse_yaml
from loaddriver.report.results import WITHOUT_ANCHORS
from loaddriver.substrates.datadir import DataDirectory
from tests.loaddriver.load_rig import PROFILES, SHIPPED, copied_profiles, edit, shipped


def load_error(name: str, folder: Path, *overrides: str) -> str:
    with pytest.raises(ProfileError) as caught:
        load_profile(name, folder, overrides)
    return str(caught.value)


def test_every_shipped_profile_loads() -> None:
    assert set(SHIPPED) <= set(profile_names(PROFILES))
    for name in profile_names(PROFILES):
        assert shipped(name).gates


def test_an_unknown_profile_lists_the_known_ones_and_the_nearest() -> None:
    text = load_error("dev-5O", PROFILES)
    assert "no profile 'dev-5O'" in text
    assert "did you mean dev-50?" in text
    assert "dev-500" in text
    assert "smoke" in text


def test_a_profile_whose_name_is_too_long_for_its_runs_is_rejected_at_once(tmp_path: Path) -> None:
    """And not when the arm with the longest name begins, after the first was measured."""
    for letters in (28, 29):
        shutil.copytree(PROFILES / "smoke", tmp_path / ("x" * letters))
    shutil.copy(PROFILES / "catalog.yaml", tmp_path)
    run_id = f"{load_profile('x' * 28, tmp_path).name}-20260101-000000-1-{WITHOUT_ANCHORS}"
    DataDirectory.create(run_id, tmp_path).discard()
    with pytest.raises(ProfileError, match="has at most 28 letters"):
        load_profile("x" * 29, tmp_path)


def test_a_profile_error_is_a_usage_error() -> None:
    """Scripts see exit code 2 for what the user can fix in a profile."""
    assert int(ProfileError(["x"]).exit_code) == 2


def test_a_rate_in_the_wrong_unit_names_the_right_key(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / "smoke/profile.yaml", "churnPodsPerSecond", "churnPodsPerMinute")
    text = load_error("smoke", folder)
    assert "smoke/profile.yaml: soak.churnPodsPerMinute unknown key" in text
    assert "churn is in pods per second: churnPodsPerSecond" in text


def test_a_misspelt_key_gets_the_nearest_known_one(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / "smoke/profile.yaml", "machinesPerRack", "machinePerRack")
    text = load_error("smoke", folder)
    assert "fleet.machinePerRack unknown key; did you mean machinesPerRack?" in text
    assert "fleet.machinesPerRack is missing" in text


def test_a_key_at_the_wrong_level_gets_its_path(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / "smoke/profile.yaml", "clusters: 1", "clusters: 1\nrollupSeconds: 3")
    assert "rollupSeconds unknown key here; it belongs at bigfleet.rollupSeconds" in load_error(
        "smoke", folder
    )


def test_all_mistakes_of_a_profile_come_in_one_error(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / "smoke/profile.yaml", "steps: 2", "steps: two")
    edit(folder / "smoke/profile.yaml", "clusters: 1", "clusters: 0")
    edit(folder / "smoke/expect.yaml", "unit: seconds", "units: seconds")
    text = load_error("smoke", folder)
    assert "ramp.steps = 'two': expected int, got str" in text
    assert "clusters = 0: expected int >= 1" in text
    assert "smoke/expect.yaml: gates[3].units unknown key; did you mean unit?" in text


def test_mistakes_of_catalog_settings_and_expectations_come_in_one_error(tmp_path: Path) -> None:
    """A file with errors of its own does not hide those of the others."""
    folder = copied_profiles(tmp_path)
    edit(folder / "catalog.yaml", "cpuMillicores: 400", "cpuCores: 400")
    edit(folder / "smoke/expect.yaml", "unit: seconds", "units: seconds")
    text = load_error("smoke", folder, "ramp.budgetSeconds=1")
    assert "profiles/catalog.yaml: archetypes[0].sizes[0].cpuCores unknown key" in text
    assert "smoke/profile.yaml (overridden on the command line): ramp.budgetSeconds = 1" in text
    assert "smoke/expect.yaml: gates[3].units unknown key" in text
    text = load_error("smoke", folder, "clusters=0")
    assert "profiles/catalog.yaml: archetypes[0].sizes[0].cpuCores unknown key" in text
    assert "clusters = 0: expected int >= 1" in text


def test_mistakes_of_all_overrides_come_in_one_error() -> None:
    text = load_error("smoke", PROFILES, "soak.seconds", "seed.x=1")
    assert "write key=value" in text
    assert "seed is a single value" in text


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("soak.churnPodsPerSecond=60", "replaces every pod within 10 s"),
        ("ramp.budgetSeconds=1", "write at least 10"),
        ("ramp.capacityShare=0.8", "with ramp.pacing: fixed steps do not follow the machine"),
        ("ramp.steps=500", "only 200 pods per cluster"),
        ("weights=smoky", "did you mean smoke?"),
        ("weights={tiny-statless: 1}", "did you mean tiny-stateless?"),
        ("weights={tiny-stateless: 0}", "must not all be 0"),
        ("weights={tiny-stateless: many}", "weights.tiny-stateless = 'many'"),
        ("fleet.latency.createSeconds={median: 4, p99: 2}", "is below the median 4"),
        ("ramp.pacing=held", "'held'"),
        ("anchors=on off", "'on off'"),
    ],
)
def test_impossible_values_say_what_to_write(override: str, expected: str) -> None:
    text = load_error("smoke", PROFILES, override)
    assert expected in text
    assert "smoke/profile.yaml (overridden on the command line): " in text


def test_a_gang_larger_than_a_rack_names_the_minimal_rack() -> None:
    text = load_error("smoke", PROFILES, "weights={gpu-training-small: 1}")
    assert "smoke/profile.yaml: fleet.machinesPerRack = 4: a gpu-training-small gang of 8" in text
    assert "write at least 8" in text


def test_overrides_and_seed_change_the_profile_before_it_is_checked() -> None:
    profile = shipped("smoke", "soak.seconds=3", "anchors=on", "clusters=2", seed=7)
    assert profile.settings.soak.seconds == 3
    assert profile.settings.anchors == "on"
    assert profile.settings.pods == 400
    assert profile.settings.seed == 7


def test_an_override_may_give_a_whole_mapping() -> None:
    profile = shipped("smoke", "fleet.latency.createSeconds={median: 1, p99: 2}")
    assert profile.settings.fleet.latency.create_seconds == LatencyDistribution(median=1, p99=2)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("soak.seconds", "write key=value"),
        ("seed.x=1", "seed is a single value"),
        ("soak.seconds=[1", "SET soak.seconds"),
        ("soak.secnds=5", "soak.secnds unknown key; did you mean seconds?"),
    ],
)
def test_an_invalid_override_is_rejected_by_name(override: str, expected: str) -> None:
    assert expected in load_error("smoke", PROFILES, override)


def test_on_and_off_are_words_not_booleans(tmp_path: Path) -> None:
    """YAML 1.1 reads a bare `on` as true; a profile's author means the word."""
    folder = copied_profiles(tmp_path)
    edit(folder / "smoke/profile.yaml", 'anchors: "off"', "anchors: on")
    assert load_profile("smoke", folder).settings.anchors == "on"


def test_a_duplicate_key_is_an_error(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / "smoke/profile.yaml", "seed: 1", "seed: 1\nseed: 2")
    assert "duplicate key 'seed'" in load_error("smoke", folder)


def test_a_number_without_end_is_an_error() -> None:
    """Every limit would hold against it."""
    with pytest.raises(ProfileError, match=r"x: line 2, column 10 1e999 is too large a number"):
        parse_yaml("gates:\n  limit: 1e999", "x")


def test_a_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / "smoke/profile.yaml", "seed: 1", "seed: [1")
    assert "smoke/profile.yaml: line " in load_error("smoke", folder)


def test_a_profile_without_gates_is_rejected(tmp_path: Path) -> None:
    """A run that expects nothing would always pass."""
    folder = copied_profiles(tmp_path)
    (folder / "smoke/expect.yaml").unlink()
    assert "smoke/expect.yaml: cannot be read" in load_error("smoke", folder)
    (folder / "smoke/expect.yaml").write_text("gates: []")
    assert "smoke/expect.yaml: gates = []" in load_error("smoke", folder)


def test_a_gate_may_limit_a_ratio_to_the_bare_run_and_each_of_many_numbers(tmp_path: Path) -> None:
    """Absolute times do not carry from machine to machine; a ratio taken in one place does."""
    path = tmp_path / "expect.yaml"
    rest = "op: '<=', limit: 2, unit: times, origin: because it was so"
    path.write_text(
        f"gates: [{{name: a, metric: hopsSeconds.scheduled.p99, ratioTo: bare, {rest}}},"
        f" {{name: b, metric: archetypes.*.neverBound, {rest}}},"
        f" {{name: c, metric: archetypes.tiny-stateless.neverBound, {rest}}}]"
    )
    first, *others = load_gates(path)
    assert first.ratio_to == "bare"
    assert all(gate.ratio_to is None for gate in others)
    path.write_text(f"gates: [{{name: a, metric: pods.bound, ratioTo: best, {rest}}}]")
    with pytest.raises(ProfileError, match="ratioTo = 'best'"):
        load_gates(path)


def test_duplicate_gate_names_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "expect.yaml"
    gate = "{name: a, metric: b, op: '<=', limit: 1, unit: s, origin: because it was so}"
    path.write_text(f"gates: [{gate}, {gate}]")
    with pytest.raises(ProfileError, match="duplicate gate name 'a'"):
        load_gates(path)
