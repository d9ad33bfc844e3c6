"""A profile that names a system which cannot run it is refused with the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.errors import ProfileError
from loaddriver.profile.loading import load_profile
from loaddriver.run.context import RunOptions
from loaddriver.run.inputs import prepare_inputs
from tests.run.run_rig import PROFILES


@pytest.mark.parametrize("system", ["none", "command"])
@pytest.mark.parametrize(
    ("profile", "named"),
    [("cr-50", "load.mode"), ("fedhpa-3", "federation"), ("dev-50", "anchors")],
)
def test_what_only_bigfleet_has_is_refused(system: str, profile: str, named: str) -> None:
    with pytest.raises(ProfileError, match=named):
        load_profile(profile, PROFILES, [f"system={system}"])


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("command.stop=rm x", "command.stop without command.start"),
        ('command.start=sh -c "', "command.start is no command line"),
        ("command.begin=x", "command.begin"),
        ("command.readySeconds=0", "command.readySeconds"),
        ("system=nothing", "system"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused_with_its_key(override: str, named: str) -> None:
    with pytest.raises(ProfileError, match=named):
        load_profile("smoke", PROFILES, ["system=command", override])


@pytest.mark.parametrize(
    ("overrides", "contexts", "named"),
    [
        (("system=none", "none.nodes=existing"), (), "none.nodes = existing"),
        (("system=command",), (), "without command.start"),
        ((), ("east",), "--context east"),
    ],
)
def test_what_only_existing_clusters_have_is_refused_for_others(
    tmp_path: Path, overrides: tuple[str, ...], contexts: tuple[str, ...], named: str
) -> None:
    """Otherwise the pods would wait for Nodes that nobody provides."""
    options = RunOptions("smoke", PROFILES, tmp_path, {}, overrides=overrides, contexts=contexts)
    with pytest.raises(ProfileError, match=f"{named}.* needs --substrate existing"):
        prepare_inputs(options)
