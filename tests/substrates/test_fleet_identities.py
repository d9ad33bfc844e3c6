"""The parts of a run prove who they are by an authority that nobody else has."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bigfleet.api.auth import issuing
from bigfleet.api.auth.identity import Identity, Principal
from bigfleet.model.errors import InvalidInput
from loaddriver.run.bigfleet_roles import inspect_commands
from loaddriver.substrates.base import Endpoint
from loaddriver.substrates.fleet_identities import adopt, issue, read_only


def test_a_role_that_starts_again_keeps_its_identity(tmp_path: Path) -> None:
    """What its peers were told does not change by a restart."""
    before = issue(tmp_path, Principal("shard", "shard-0")).load()
    issue(tmp_path, Principal("cluster", "c1"))
    after = issue(tmp_path, Principal("shard", "shard-0")).load()
    assert after.certificate == before.certificate
    assert after.authority == before.authority


def test_two_runs_do_not_trust_each_other(tmp_path: Path) -> None:
    """A part that another run left behind is a stranger."""
    one, two = (
        issue(tmp_path / run, Principal("shard", "shard-0")).load() for run in ("one", "two")
    )
    assert one.authority != two.authority


def test_a_part_from_elsewhere_and_the_run_trust_each_other(tmp_path: Path) -> None:
    """Their certificates come from one authority, which is copied for the time of the run."""
    made, run = tmp_path / "made", tmp_path / "run"
    provider = Principal("provider", "shop")
    before = issuing.issue(made, [provider], timedelta(days=1))[provider].load()
    run.mkdir()
    adopt(run, made)
    assert issue(run, Principal("shard", "shard-0")).load().authority == before.authority
    assert all(path.stat().st_mode & 0o077 == 0 for path in run.rglob("ca.*"))


def test_a_folder_without_an_authority_is_refused_with_the_command_that_makes_one(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidInput, match=r"ca\.crt.*bigfleet certs --out DIR"):
        adopt(tmp_path / "run", tmp_path)


def test_people_look_with_an_identity_that_may_only_read(tmp_path: Path) -> None:
    """`make up` shows the command; roles without an identity have no way in that needs one."""
    issue(tmp_path, Principal("shard", "shard-0"))
    readonly = read_only(tmp_path)
    assert Identity(readonly).load().name == Principal("readonly")
    shard = Endpoint("shard-0", None, tmp_path, {"listen": "127.0.0.1:1"}, readonly)
    controller = Endpoint("c1/pod-controller", None, tmp_path)
    assert list(inspect_commands([shard, controller])) == [
        f"shard-0: bigfleet why --shard 127.0.0.1:1 --identity {readonly} --need CLUSTER"
    ]
